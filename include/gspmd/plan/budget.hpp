// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/vec.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/sharding.hpp"

namespace gspmd {

/// The kinds of collectives.
using detail::collective_kind;

/// 1,024 bytes.
inline constexpr std::int64_t KiB = 1024;
/// 1,024 KiB.
inline constexpr std::int64_t MiB = 1024 * KiB;
/// 1,024 MiB.
inline constexpr std::int64_t GiB = 1024 * MiB;

/// The names of some axes of a mesh, separated by commas, in the order of the mesh. It has room for the names
/// of all axes of any mesh.
struct axis_names {
  static constexpr std::size_t most_chars = (detail::max_name + 1) * static_cast<std::size_t>(detail::max_axes);
  char chars[most_chars]{};
  int size = 0;

  constexpr axis_names() = default;
  constexpr axis_names(const char* names) : axis_names(std::string_view(names)) {}  // NOLINT: implicit on purpose
  /// Throws gspmd::error if the text is longer than the names of all axes of any mesh.
  constexpr axis_names(std::string_view names) : size(static_cast<int>(names.size())) {  // NOLINT: implicit on purpose
    if (names.size() > most_chars) throw error("a mesh has no axes whose names are so long: " + std::string(names));
    for (std::size_t i = 0; i < names.size(); ++i) chars[i] = names[i];
  }
  [[nodiscard]] constexpr std::string_view view() const { return {chars, static_cast<std::size_t>(size)}; }
};

/// A kind of collective and the mesh axes over which it communicates, as a plan lists them.
struct collective {
  collective_kind kind = collective_kind::all_reduce;
  axis_names axes;

  friend constexpr bool operator==(const collective& a, const collective& b) {
    return a.kind == b.kind && a.axes.view() == b.axes.view();
  }
};

/// A list of collectives to compare with the list of a program.
///
///     static_assert(step::collectives == collectives{all_gather<"x">, all_reduce<"x,y">});
///
/// If the static_assert fails, the compiler shows only this text. `same_collectives` also shows the list of the
/// program.
template <std::size_t N>
struct collectives {
  collective items[N == 0 ? 1 : N]{};
  static constexpr std::size_t count = N;

  template <std::size_t M>
  friend constexpr bool operator==(const collectives& a, const collectives<M>& b) {
    if (N != M) return false;
    for (std::size_t i = 0; i < N; ++i)
      if (!(a.items[i] == b.items[i])) return false;
    return true;
  }
};
collectives() -> collectives<0>;
template <class... Cs>
collectives(collective, Cs...) -> collectives<1 + sizeof...(Cs)>;

/// An all_reduce over mesh axes, to compare with the plan of a program: all_reduce<"model">.
template <fixed_string Axes>
inline constexpr collective all_reduce{collective_kind::all_reduce, Axes.view()};
/// A reduce_scatter over mesh axes.
template <fixed_string Axes>
inline constexpr collective reduce_scatter{collective_kind::reduce_scatter, Axes.view()};
/// An all_gather over mesh axes.
template <fixed_string Axes>
inline constexpr collective all_gather{collective_kind::all_gather, Axes.view()};
/// An all_to_all over mesh axes.
template <fixed_string Axes>
inline constexpr collective all_to_all{collective_kind::all_to_all, Axes.view()};
/// A collective_permute over mesh axes.
template <fixed_string Axes>
inline constexpr collective collective_permute{collective_kind::collective_permute, Axes.view()};

namespace detail {

/// Adds up a quantity over a run of the program. `add(total, step)` adds all `step.times` runs of a step.
///
/// A conditional counts the larger sum of its two bodies: `total.raise_to(other)` sets each number of `total` to the
/// maximum of both. Sums start as `nothing`.
///
///     steps: a, branch, b, otherwise, c, join, d   ->   a + max(b, c) + d
template <class Sum, class Add>
constexpr Sum fold_over_run(const plan_view& p, const Sum& nothing, Add add) {
  constant_vector<Sum> before, first;  // for each open conditional: the total before it, and the sum of its first body
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
      total.raise_to(first.back());
      total += before.back();
      before.pop_back();
      first.pop_back();
    } else {
      add(total, s);
    }
  }
  return total;
}

constexpr std::size_t count_collectives(const plan_view& p) {
  std::size_t n = 0;
  for (const auto& s : p.steps) n += communicates(s) ? 1 : 0;
  return n;
}

template <std::size_t N>
constexpr collectives<N> list_collectives(const plan_view& p, const mesh_info& mesh) {
  collectives<N> result;
  std::size_t n = 0;
  for (const auto& s : p.steps)
    if (communicates(s)) result.items[n++] = collective{s.collective, axes_text(mesh, s.axes).view()};
  return result;
}

/// The collectives of a program with a mistake. They compare equal to any list, so that a static_assert adds no second
/// error.
struct unknown_collectives : collectives<0> {
  template <std::size_t N>
  friend constexpr bool operator==(const unknown_collectives&, const collectives<N>&) {
    return true;
  }
  friend constexpr bool operator==(const unknown_collectives&, const unknown_collectives&) { return true; }
};

/// Selects the collectives of some kinds that communicate over each axis in `over`. An axis of the user's mesh can be
/// several axes of the planner's mesh, so an axis is a mask. A collective over any axis in the mask is selected.
struct collective_filter {
  inline_vec<axis_mask, max_axes> over;
  unsigned kinds = ~0U;  // one bit for each collective_kind

  [[nodiscard]] constexpr bool holds(const plan_step& s) const {
    if (!communicates(s) || (kinds >> static_cast<unsigned>(s.collective) & 1U) == 0) return false;
    for (const auto axes : over)
      if ((s.axes & axes) == 0) return false;
    return true;
  }
};
constexpr collective_filter over_axes(axis_mask axes) { return {{axes}}; }
constexpr collective_filter of_kind(collective_kind kind) { return {{}, 1U << static_cast<unsigned>(kind)}; }

/// The numbers of bytes, messages and collectives that one device sends.
struct traffic_count {
  std::int64_t bytes = 0, messages = 0, collectives = 0;

  constexpr void add(const traffic_count& b, std::int64_t times = 1) {
    bytes = saturating_add(bytes, saturating_multiply(b.bytes, times));
    messages = saturating_add(messages, saturating_multiply(b.messages, times));
    collectives = saturating_add(collectives, saturating_multiply(b.collectives, times));
  }
  constexpr void operator+=(const traffic_count& b) { add(b); }
  constexpr void raise_to(const traffic_count& b) {
    bytes = bytes < b.bytes ? b.bytes : bytes;
    messages = messages < b.messages ? b.messages : messages;
    collectives = collectives < b.collectives ? b.collectives : collectives;
  }
};
/// Returns the traffic of a step that is executed once.
constexpr traffic_count sent_by(const plan_step& s) { return {s.bytes_sent, s.messages, 1}; }
constexpr traffic_count count_traffic_of(const plan_view& p, const collective_filter& which) {
  return fold_over_run(p, traffic_count{}, [&](traffic_count& total, const plan_step& s) {
    if (which.holds(s)) total.add(sent_by(s), s.times);
  });
}

template <class = once>
traffic_count count_traffic_at_run_time(const plan_view& p, const collective_filter& which);

/// Returns the traffic of a device in a run of the program.
constexpr traffic_count count_traffic(const plan_view& p, const collective_filter& which = {}) {
  // With std::is_constant_evaluated, Clang compiles both branches at -O0.
  if (__builtin_is_constant_evaluated()) return count_traffic_of(p, which);
  return count_traffic_at_run_time(p, which);
}

/// Adds up `of(node)` over a run. `of(node)` counts all iterations of the node. A conditional counts the more expensive
/// of its bodies.
///
///     nodes: a, branch (body b), otherwise (body c), d
///     ->  of(a) + max(of(branch) + of(b), of(otherwise) + of(c)) + of(d)
template <class Of>
constexpr std::int64_t total_of_nodes(const plan_view& p, Of of) {
  constant_vector<std::int64_t> body(p.nodes.size(), 0);  // for each node that opens a body: the sum of the body
  constant_vector<std::int64_t> second;                   // sums of second bodies: the loop runs backward
  std::int64_t total = 0;
  for (std::size_t i = p.nodes.size(); i-- > 0;) {
    const auto& n = p.nodes[i];
    std::int64_t own = saturating_add(of(n), body[i]);
    if (n.op == opcode::otherwise) {
      second.push_back(own);
      continue;
    }
    if (n.op == opcode::branch) {
      if (own < second.back()) own = second.back();
      second.pop_back();
    }
    auto& sum = n.region < 0 ? total : body[static_cast<std::size_t>(n.region)];
    sum = saturating_add(sum, own);
  }
  return total;
}
constexpr std::int64_t total_flops(const plan_view& p) {
  return total_of_nodes(p, [](const planned_node& n) { return n.flops; });
}

/// Returns the bytes that an MPI communicator allocates in addition to the plan's memory, to pack messages. Its buffers
/// grow to the size that the largest step needs, and stay.
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

/// Throws gspmd::error for an unknown mesh axis. In a constant expression the call itself is the compile error, and the
/// name of the function is the message.
[[noreturn]] inline void the_mesh_has_no_axis_of_this_name(std::string_view axis) {
  throw error("the mesh has no axis `" + std::string(axis) + '`');
}

}  // namespace detail

/// The bytes, messages and collectives that one device sends in a run of a program, in total or in part.
///
/// Each iteration of a loop counts. A conditional counts the larger number of its two bodies, separately for bytes,
/// messages and collectives.
///
///     static_assert(step::traffic.bytes == 4096 && step::traffic.over("x").messages == 7);
///     static_assert(step::traffic.over("x").in(collective_kind::all_gather).collectives == 0);
///     program.traffic().over("model").bytes  // planned at run time; the program must outlive the traffic
class traffic {
 public:
  constexpr traffic(const detail::plan_view& plan, const detail::mesh_info& mesh) : traffic(plan, mesh, {}) {}

  /// The bytes that one device sends in the usual ring and direct algorithms. The padding of uneven shards counts.
  std::int64_t bytes = 0;
  /// The messages that one device sends in the same algorithms, among n devices:
  ///  - all_gather, reduce_scatter, all_to_all: n-1
  ///  - all_reduce: 2(n-1)
  ///  - collective_permute: 1, or more if for example a shift or slice reads shards of several devices
  ///  - an operand whose shards rotate around a ring: n-1
  std::int64_t messages = 0;
  std::int64_t collectives = 0;

  /// Returns the traffic over the axis. A collective over two axes counts for both.
  ///
  /// **Errors.** Throws gspmd::error if the mesh has no such axis. In a constant expression this is a compile error.
  [[nodiscard]] constexpr traffic over(std::string_view axis) const {
    auto which = which_;
    const auto axes = mesh_->mask_of(axis);
    if (axes == 0) detail::the_mesh_has_no_axis_of_this_name(axis);
    which.over.push_back(axes);
    return {*plan_, *mesh_, which};
  }
  /// Returns the traffic of the collectives of this kind.
  [[nodiscard]] constexpr traffic in(collective_kind kind) const {
    auto which = which_;
    which.kinds &= 1U << static_cast<unsigned>(kind);
    return {*plan_, *mesh_, which};
  }

 private:
  constexpr traffic(const detail::plan_view& plan, const detail::mesh_info& mesh, const detail::collective_filter& which)
      : plan_(&plan), mesh_(&mesh), which_(which) {
    const auto count = detail::count_traffic(plan, which);
    bytes = count.bytes;
    messages = count.messages;
    collectives = count.collectives;
  }

  const detail::plan_view* plan_;
  const detail::mesh_info* mesh_;
  detail::collective_filter which_;
};

}  // namespace gspmd

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/plan/budget.ipp"
#endif
