// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/budget.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/support/fixed_string.hpp"
#include "gspmd/detail/support/refuse.hpp"

namespace gspmd {

/// Limits for within_budget. What one device sends, on all axes together or in collectives over one axis:
template <std::int64_t Bytes>
struct max_bytes;
template <fixed_string Axis, std::int64_t Bytes>
struct max_bytes_over;
/// What one device holds: inputs, outputs and everything between them.
template <std::int64_t Bytes>
struct max_memory;
/// The number of collectives.
template <int Count>
struct max_collectives;

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

constexpr text costliest_steps(const plan_view& p, const mesh_info& mesh, axis_mask axes) {
  return heaviest(
      p.steps.size(),
      [&](std::size_t i) { return (axes_of(p, p.steps[i]) & axes) != 0 ? p.steps[i].bytes_sent * p.steps[i].times : 0; },
      [&](text& t, std::size_t i) {
        const auto& s = p.steps[i];
        const auto& n = p.nodes[static_cast<std::size_t>(s.node)];
        t << name_of(s.collective) << " over `" << axes_text(mesh, axes_of(p, s)) << "` for "
          << graph::place(n.at, name_of(n.op));
      });
}

constexpr text over_bytes(const plan_view& p, const mesh_info& mesh, axis_mask axes, std::int64_t limit, std::string_view where) {
  const auto sent = bytes_over(p, axes);
  if (sent <= limit) return {};
  return text("a device sends ") << sent << " bytes" << where << ", " << limit << " are allowed"
                                 << costliest_steps(p, mesh, axes);
}

template <class Limit>
struct budget_of;  // text check(plan, mesh): what is over the limit; empty if nothing is

template <std::int64_t Bytes>
struct budget_of<max_bytes<Bytes>> {
  static constexpr text check(const plan_view& p, const mesh_info& mesh) { return over_bytes(p, mesh, ~axis_mask{0}, Bytes, ""); }
};
template <fixed_string Axis, std::int64_t Bytes>
struct budget_of<max_bytes_over<Axis, Bytes>> {
  static constexpr text check(const plan_view& p, const mesh_info& mesh) {
    const int axis = mesh.find(Axis.view());
    if (axis < 0)
      return text("`") << Axis.view() << "` is not an axis of the mesh; its axes are " << axes_text(mesh, ~axis_mask{0});
    return over_bytes(p, mesh, axis_bit(axis), Bytes, (text(" over `") << Axis.view() << '`').view());
  }
};
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
template <int Count>
struct budget_of<max_collectives<Count>> {
  static constexpr text check(const plan_view& p, const mesh_info& mesh) {
    const auto count = static_cast<std::int64_t>(count_collectives(p));
    if (count <= Count) return {};
    return text("a device takes part in ") << count << " collectives, " << Count << " are allowed"
                                           << costliest_steps(p, mesh, ~axis_mask{0});
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
constexpr bool report_budget() {
  if constexpr (Step::accepted) {
    if constexpr (!is_within<Step, Limit>()) refuse<mistake::budget, budget_violation<Step, Limit>>();
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
template <class Step, class... Limits>
inline constexpr bool within_budget = (detail::report_budget<Step, Limits>() && ...);

}  // namespace gspmd
