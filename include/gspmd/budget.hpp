// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/vec.hpp"
#include "gspmd/error.hpp"
#include "gspmd/sharding.hpp"

namespace gspmd {

using detail::collective_kind;

inline constexpr std::int64_t KiB = 1024;
inline constexpr std::int64_t MiB = 1024 * KiB;
inline constexpr std::int64_t GiB = 1024 * MiB;

/// The names of some axes of a mesh, separated by commas, in the order of the mesh. There is room for all axes of any mesh.
struct axis_names {
  static constexpr std::size_t most_chars = (detail::max_name + 1) * static_cast<std::size_t>(detail::max_axes);
  char chars[most_chars]{};
  int size = 0;

  constexpr axis_names() = default;
  constexpr axis_names(const char* names) : axis_names(std::string_view(names)) {}  // NOLINT: implicit on purpose
  /// Throws gspmd::error: more characters than the names of 16 axes have.
  constexpr axis_names(std::string_view names) : size(static_cast<int>(names.size())) {  // NOLINT: implicit on purpose
    if (names.size() > most_chars) throw error("a mesh has no axes whose names are so long: " + std::string(names));
    for (std::size_t i = 0; i < names.size(); ++i) chars[i] = names[i];
  }
  [[nodiscard]] constexpr std::string_view view() const { return {chars, static_cast<std::size_t>(size)}; }
};

/// A kind of collective and the mesh axes it communicates over, as a plan lists them.
struct collective {
  collective_kind kind = collective_kind::all_reduce;
  axis_names axes;

  friend constexpr bool operator==(const collective& a, const collective& b) {
    return a.kind == b.kind && a.axes.view() == b.axes.view();
  }
};

/// A list of collectives to compare a program's with: `step::collectives == list{all_gather<"x">, all_reduce<"x,y">}`.
template <std::size_t N>
struct list {
  collective items[N == 0 ? 1 : N]{};
  static constexpr std::size_t count = N;

  template <std::size_t M>
  friend constexpr bool operator==(const list& a, const list<M>& b) {
    if (N != M) return false;
    for (std::size_t i = 0; i < N; ++i)
      if (!(a.items[i] == b.items[i])) return false;
    return true;
  }
};
list() -> list<0>;
template <class... Cs>
list(collective, Cs...) -> list<1 + sizeof...(Cs)>;

template <fixed_string Axes>
inline constexpr collective all_reduce{collective_kind::all_reduce, Axes.view()};
template <fixed_string Axes>
inline constexpr collective reduce_scatter{collective_kind::reduce_scatter, Axes.view()};
template <fixed_string Axes>
inline constexpr collective all_gather{collective_kind::all_gather, Axes.view()};
template <fixed_string Axes>
inline constexpr collective all_to_all{collective_kind::all_to_all, Axes.view()};
template <fixed_string Axes>
inline constexpr collective collective_permute{collective_kind::collective_permute, Axes.view()};

namespace detail {

/// Sums over a run of the program: `add(total, step)` adds all the times that a step runs, which are `step.times`; of the bodies
/// of a conditional the heavier one counts. A sum has `+=` and `<`, and begins as `nothing`.
template <class Sum, class Add>
constexpr Sum fold_over_run(const plan_view& p, const Sum& nothing, Add add) {
  std::vector<Sum> before, first;  // by conditional that is open: what is in front of it, and what its first body adds
  Sum total = nothing;
  for (const auto& s : p.steps) {
    const auto role = facts_of(s).role;
    if (role == step_role::branch) {
      before.push_back(total);
      total = nothing;
    } else if (role == step_role::otherwise) {
      first.push_back(total);
      total = nothing;
    } else if (role == step_role::join) {
      if (total < first.back()) total = first.back();
      total += before.back();
      before.pop_back();
      first.pop_back();
    } else {
      add(total, s);
    }
  }
  return total;
}

struct run_count {
  std::int64_t n = 0;
  constexpr void operator+=(run_count b) { n = saturating_add(n, b.n); }
  friend constexpr bool operator<(run_count a, run_count b) { return a.n < b.n; }
};

/// Sums what the steps weigh, one number per step.
constexpr std::int64_t sum_over_run(const plan_view& p, const vec<std::int64_t>& weights) {
  const auto add = [&](run_count& total, const plan_step& s) {
    total += run_count{saturating_multiply(weights[static_cast<std::size_t>(&s - p.steps.data())], s.times)};
  };
  return fold_over_run(p, run_count{}, add).n;
}
/// Sums `weight(step)`.
template <class Weight>
  requires std::is_invocable_v<Weight, const plan_step&>
constexpr std::int64_t sum_over_run(const plan_view& p, Weight weight) {
  vec<std::int64_t> weights;
  for (const auto& s : p.steps) weights.push_back(weight(s));
  return sum_over_run(p, weights);
}

constexpr std::size_t count_collectives(const plan_view& p) {
  std::size_t n = 0;
  for (const auto& s : p.steps) n += communicates(p, s) ? 1 : 0;
  return n;
}

template <std::size_t N>
constexpr list<N> list_collectives(const plan_view& p, const mesh_info& mesh) {
  list<N> result;
  std::size_t n = 0;
  for (const auto& s : p.steps)
    if (communicates(p, s)) result.items[n++] = collective{s.collective, axes_text(mesh, axes_of(p, s)).view()};
  return result;
}

inline constexpr axis_mask all_axes = ~axis_mask{0};

/// Which collectives a count is about: those over any of some axes, of one kind or of any.
struct collective_filter {
  axis_mask axes = all_axes;
  int kind = -1;  // a collective_kind; -1: any

  [[nodiscard]] constexpr bool holds(const plan_view& p, const plan_step& s) const {
    return communicates(p, s) && (axes_of(p, s) & axes) != 0 && (kind < 0 || kind == static_cast<int>(s.collective));
  }
};
constexpr collective_filter over_axes(axis_mask axes) { return {axes, -1}; }
constexpr collective_filter of_kind(collective_kind kind) { return {all_axes, static_cast<int>(kind)}; }

constexpr std::int64_t total_bytes(const plan_view& p, collective_filter which = {}) {
  return sum_over_run(p, [&](const plan_step& s) { return which.holds(p, s) ? s.bytes_sent : 0; });
}
constexpr std::int64_t total_messages(const plan_view& p, collective_filter which = {}) {
  return sum_over_run(p, [&](const plan_step& s) { return which.holds(p, s) ? facts_of(s).messages(p, s) : 0; });
}
constexpr std::int64_t total_collectives(const plan_view& p, collective_filter which = {}) {
  return sum_over_run(p, [&](const plan_step& s) { return which.holds(p, s) ? 1 : 0; });
}
/// The flops of a node are those of all its trips; of the bodies of a conditional the dearer one counts.
constexpr std::int64_t total_flops(const plan_view& p) {
  std::vector<std::int64_t> body(p.nodes.size(), 0);  // by the node that opens it
  std::vector<std::int64_t> second;                   // bodies whose first is not reached yet: backwards, a body is all there
  std::int64_t total = 0;
  for (std::size_t i = p.nodes.size(); i-- > 0;) {
    const auto& n = p.nodes[i];
    std::int64_t flops = saturating_add(n.flops, body[i]);
    if (n.op == opcode::otherwise) {
      second.push_back(flops);
      continue;
    }
    if (n.op == opcode::branch) {
      if (flops < second.back()) flops = second.back();
      second.pop_back();
    }
    auto& sum = n.region < 0 ? total : body[static_cast<std::size_t>(n.region)];
    sum = saturating_add(sum, flops);
  }
  return total;
}

/// The bytes one device sends in steps that communicate over any of `axes`.
constexpr std::int64_t bytes_over(const plan_view& p, axis_mask axes) { return total_bytes(p, over_axes(axes)); }

/// Inputs, outputs and the arena, per device.
constexpr std::int64_t peak_bytes(const plan_view& p) {
  std::int64_t total = p.arena_bytes;
  for (const auto* list : {&p.inputs, &p.outputs})
    for (const int v : *list) total = saturating_add(total, elements(p.value(v).local) * bytes_of(p.value(v).type));
  return total;
}

/// What an MPI communicator may hold beside that, to pack messages in: it grows to what the largest step needs and stays.
constexpr std::int64_t packing_bytes(const plan_view& p) {
  std::int64_t send = 0, receive = 0;
  for (const auto& s : p.steps) {
    const auto elems = facts_of(s).packing(p, s);
    const auto size = bytes_of(s.type);
    if (elems.send_elems * size > send) send = elems.send_elems * size;
    if (elems.receive_elems * size > receive) receive = elems.receive_elems * size;
  }
  return send + receive;
}

}  // namespace detail
}  // namespace gspmd
