// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gspmd/budget.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/support/fixed_string.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/error.hpp"

namespace gspmd {

/// Limits for within_budget. All count a run of the program: what stands in a loop counts once for each trip, what stands in the
/// bodies of a conditional counts in the body that has more of what is limited. (`step::collectives` names a collective in a
/// loop once.) What one device sends: altogether, in collectives over one axis, in collectives of one kind
/// (`collective_kind::all_gather`).
template <std::int64_t Bytes>
struct max_bytes;
template <fixed_string Axis, std::int64_t Bytes>
struct max_bytes_over;
template <collective_kind Kind, std::int64_t Bytes>
struct max_bytes_in;
/// The messages that takes.
template <std::int64_t Count>
struct max_messages;
template <fixed_string Axis, std::int64_t Count>
struct max_messages_over;
template <collective_kind Kind, std::int64_t Count>
struct max_messages_in;
/// The number of collectives.
template <std::int64_t Count>
struct max_collectives;
template <fixed_string Axis, std::int64_t Count>
struct max_collectives_over;
template <collective_kind Kind, std::int64_t Count>
struct max_collectives_in;
/// What one device holds: inputs, outputs and everything between them.
template <std::int64_t Bytes>
struct max_memory;
/// What one device computes, counted as `flops_per_device` counts it.
template <std::int64_t Count>
struct max_flops;

namespace detail {

/// Names the three items of a plan that weigh most: `weight(i)` of `count` items, `name(text, i)`.
template <class Weight, class Name>
constexpr text heaviest(std::size_t count, Weight weight, Name name) {
  text t("; most of it: ");
  std::int64_t last = -1;  // weight and number of the item named before
  std::size_t last_item = 0;
  for (int n = 0; n < 3; ++n) {
    std::int64_t most = 0;
    std::size_t item = count;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t w = weight(i);
      const bool is_after = last < 0 || w < last || (w == last && i > last_item);
      if (is_after && w > most) {
        most = w;
        item = i;
      }
    }
    if (item == count) break;
    if (n > 0) t << ", ";
    name(t, item);
    t << ' ' << most;
    last = most;
    last_item = item;
  }
  return t;
}

/// What a limit on communication counts in each step.
struct counted_bytes {
  static constexpr std::string_view verb = "sends", unit = "byte";
  static constexpr std::int64_t of(const plan_view&, const plan_step& s) { return s.bytes_sent; }
};
struct counted_messages {
  static constexpr std::string_view verb = "sends", unit = "message";
  static constexpr std::int64_t of(const plan_view& p, const plan_step& s) { return facts_of(s).messages(p, s); }
};
struct counted_collectives {
  static constexpr std::string_view verb = "takes part in", unit = "collective";
  static constexpr std::int64_t of(const plan_view&, const plan_step&) { return 1; }
};

template <class Counted>
constexpr text over_limit(const plan_view& p, const mesh_info& mesh, collective_filter which, std::int64_t limit,
                          const text& where) {
  const auto count = [&](const plan_step& s) { return which.holds(p, s) ? Counted::of(p, s) : std::int64_t{0}; };
  const auto weight = [&](std::size_t i) { return saturating_multiply(count(p.steps[i]), p.steps[i].times); };
  const std::int64_t total = sum_over_run(p, count);
  if (total <= limit) return {};
  return text("a device ") << Counted::verb << ' ' << total << ' ' << Counted::unit << (total == 1 ? "" : "s") << where << ", "
                           << limit << " are allowed" << heaviest(p.steps.size(), weight, [&](text& t, std::size_t i) {
                                const auto& s = p.steps[i];
                                const auto& n = p.nodes[static_cast<std::size_t>(s.node)];
                                t << name_of(s.collective) << " over `" << axes_text(mesh, axes_of(p, s)) << "` for "
                                  << graph::place(n.at, name_of(n.op));
                              });
}

template <class Counted, std::int64_t Limit>
struct limit_on_all {
  static constexpr text check(const plan_view& p, const mesh_info& mesh) { return over_limit<Counted>(p, mesh, {}, Limit, {}); }
};
template <class Counted, fixed_string Axis, std::int64_t Limit>
struct limit_on_axis {
  static constexpr std::string_view axis = Axis.view();
  static constexpr text check(const plan_view& p, const mesh_info& mesh) {
    const auto axes = mesh.mask_of(Axis.view());
    if (axes == 0) return text("`") << Axis.view() << "` is not an axis of the mesh; its axes are " << names_text(mesh);
    return over_limit<Counted>(p, mesh, over_axes(axes), Limit, text(" over `") << Axis.view() << '`');
  }
};
template <class Counted, collective_kind Kind, std::int64_t Limit>
struct limit_on_kind {
  static constexpr text check(const plan_view& p, const mesh_info& mesh) {
    return over_limit<Counted>(p, mesh, of_kind(Kind), Limit, text(" in ") << name_of(Kind));
  }
};

template <class Limit>
struct budget_of;  // text check(plan, mesh): what is over the limit; empty if nothing is

template <std::int64_t N>
struct budget_of<max_bytes<N>> : limit_on_all<counted_bytes, N> {};
template <fixed_string Axis, std::int64_t N>
struct budget_of<max_bytes_over<Axis, N>> : limit_on_axis<counted_bytes, Axis, N> {};
template <collective_kind Kind, std::int64_t N>
struct budget_of<max_bytes_in<Kind, N>> : limit_on_kind<counted_bytes, Kind, N> {};
template <std::int64_t N>
struct budget_of<max_messages<N>> : limit_on_all<counted_messages, N> {};
template <fixed_string Axis, std::int64_t N>
struct budget_of<max_messages_over<Axis, N>> : limit_on_axis<counted_messages, Axis, N> {};
template <collective_kind Kind, std::int64_t N>
struct budget_of<max_messages_in<Kind, N>> : limit_on_kind<counted_messages, Kind, N> {};
template <std::int64_t N>
struct budget_of<max_collectives<N>> : limit_on_all<counted_collectives, N> {};
template <fixed_string Axis, std::int64_t N>
struct budget_of<max_collectives_over<Axis, N>> : limit_on_axis<counted_collectives, Axis, N> {};
template <collective_kind Kind, std::int64_t N>
struct budget_of<max_collectives_in<Kind, N>> : limit_on_kind<counted_collectives, Kind, N> {};
template <std::int64_t Bytes>
struct budget_of<max_memory<Bytes>> {
  static constexpr text check(const plan_view& p, const mesh_info&) {
    const auto peak = peak_bytes(p);
    if (peak <= Bytes) return {};
    return text("a device holds ") << peak << " bytes, " << Bytes << " are allowed; the arena is " << p.arena_bytes
                                   << heaviest(
                                          p.values.size(),
                                          [&](std::size_t i) {
                                            const auto& v = p.values[i];
                                            return v.where.where == memory_place::kind::none
                                                       ? 0
                                                       : elements(v.local) * bytes_of(v.type);
                                          },
                                          [&](text& t, std::size_t i) {
                                            const auto& n = p.nodes[static_cast<std::size_t>(p.values[i].node)];
                                            t << graph::place(n.at, name_of(n.op)) << ' ' << shape_text(p.values[i].local);
                                          });
  }
};
template <std::int64_t Count>
struct budget_of<max_flops<Count>> {
  static constexpr text check(const plan_view& p, const mesh_info&) {
    const auto total = total_flops(p);
    if (total <= Count) return {};
    return text("a device computes ") << total << " flops, " << Count << " are allowed"
                                      << heaviest(
                                             p.nodes.size(), [&](std::size_t i) { return p.nodes[i].flops; },
                                             [&](text& t, std::size_t i) {
                                               t << graph::place(p.nodes[i].at, name_of(p.nodes[i].op));
                                             });
  }
};

template <class Step, class Limit>
struct budget_violation {
  static constexpr text make() { return budget_of<Limit>::check(Step::view, Step::mesh_type::info); }
};

template <class Step, class Limit>
constexpr bool is_within() {
  const text t = budget_violation<Step, Limit>::make();
  return t.empty();
}

template <class Step, class Limit>
constexpr bool names_unknown_axis() {
  if constexpr (requires { budget_of<Limit>::axis; }) return Step::mesh_type::info.mask_of(budget_of<Limit>::axis) == 0;
  else return false;
}

template <class Step, class Limit>
constexpr bool report_budget() {
  if constexpr (Step::accepted) {
    if constexpr (names_unknown_axis<Step, Limit>()) refuse<mistake::unknown_axis, budget_violation<Step, Limit>>();
    else if constexpr (!is_within<Step, Limit>()) refuse<mistake::budget, budget_violation<Step, Limit>>();
  }
  return true;
}

}  // namespace detail

/// True when a compiled program keeps to all limits. Asks; it is within_budget that reports.
template <class Step, class... Limits>
inline constexpr bool is_within_budget = (detail::is_within<Step, Limits>() && ...);

/// Holds a compiled program to its budget: a limit that it breaks is a compile error with both numbers and the operators,
/// with their lines, that cost most.
///
///     static_assert(within_budget<step, max_bytes<64 * KiB>, max_bytes_over<"model", 0>, max_memory<4 * MiB>>);
///     static_assert(within_budget<step, max_collectives_in<collective_kind::all_gather, 0>, max_flops<1'000'000>>);
template <class Step, class... Limits>
inline constexpr bool within_budget = (detail::report_budget<Step, Limits>() && ...);

/// The same for a program that was compiled at run time: throws gspmd::error with the text of the compile error.
///
///     check_budget<max_bytes<64 * KiB>, max_messages_over<"model", 6>>(program);
template <class... Limits, class Program>
void check_budget(const Program& program) {
  const auto hold_to = [&program](const auto& check) {
    const auto t = check(program.view(), program.mesh_info());
    if (!t.empty()) throw error(std::string(t.view()));
  };
  (hold_to(detail::budget_of<Limits>::check), ...);
}

}  // namespace gspmd
