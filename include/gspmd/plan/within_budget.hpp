// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/support/fixed_string.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/error.hpp"
#include "gspmd/plan/budget.hpp"

namespace gspmd {

/// Limits for within_budget. All limits count a whole run of the program, like `traffic`. In contrast,
/// `step::collectives` names a collective in a loop once.
/// max_bytes limits the bytes that one device sends, in total or, with `over` and `in_kind`, in some collectives.
///
/// **Example.**
///
///     max_bytes<4 * MiB>   max_bytes<0, over<"data">>
///     max_messages<6, over<"x">, in_kind<collective_kind::all_reduce>>
template <std::int64_t Bytes, class... Which>
struct max_bytes;
/// Limits the messages that one device sends.
template <std::int64_t Count, class... Which>
struct max_messages;
/// Limits the number of collectives that one device takes part in.
template <std::int64_t Count, class... Which>
struct max_collectives;
/// Restricts a limit to collectives over an axis, like `traffic.over()`.
template <fixed_string Axis>
struct over {};
/// Restricts a limit to collectives of a kind, like `traffic.in()`.
template <collective_kind Kind>
struct in_kind {};
/// Limits the bytes that one device holds: inputs, outputs and all values between them.
template <std::int64_t Bytes>
struct max_memory;
/// Limits the flops that one device computes, as flops_per_device counts them.
template <std::int64_t Count>
struct max_flops;

namespace detail {

/// Names the three items of a plan with the largest weights. There are `count` items; `weight(i)` is the weight of item
/// i, and `name(text, i)` appends its name.
/// Example: weights 5, 0, 9 with names a, b, c -> "; most of it: c 9, a 5".
template <class Weight, class Name>
constexpr text heaviest(std::size_t count, Weight weight, Name name) {
  text t("; most of it: ");
  std::int64_t last = -1;  // weight and number of the last item that was named
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

/// The number that a limit on communication limits, and its words in error texts.
struct limited_number {
  std::int64_t traffic_count::*number;
  std::string_view verb, unit;
};
inline constexpr limited_number counted_bytes{&traffic_count::bytes, "sends", "byte"};
inline constexpr limited_number counted_messages{&traffic_count::messages, "sends", "message"};
inline constexpr limited_number counted_collectives{&traffic_count::collectives, "takes part in", "collective"};

constexpr text over_limit(const plan_view& p, const mesh_info& mesh, const limited_number& what, const collective_filter& which,
                          std::int64_t limit, const text& where) {
  const std::int64_t total = count_traffic(p, which).*what.number;
  if (total <= limit) return {};
  const auto weight = [&](std::size_t i) {
    const auto& s = p.steps[i];
    return which.holds(s) ? saturating_multiply(sent_by(s).*what.number, s.times) : 0;
  };
  return text("a device ") << what.verb << ' ' << total << ' ' << what.unit << (total == 1 ? "" : "s") << where << ", " << limit
                           << " are allowed" << heaviest(p.steps.size(), weight, [&](text& t, std::size_t i) {
                                const auto& s = p.steps[i];
                                const auto& n = p.nodes[static_cast<std::size_t>(s.node)];
                                t << name_of(s.collective) << " over `" << axes_text(mesh, s.axes) << "` for "
                                  << graph::place(n.at, name_of(n.op));
                              });
}

template <fixed_string Axis>
constexpr void narrow(collective_filter& which, text& where, const mesh_info& mesh, over<Axis>) {
  which.over.push_back(mesh.mask_of(Axis.view()));
  where << " over `" << Axis.view() << '`';
}
template <collective_kind Kind>
constexpr void narrow(collective_filter& which, text& where, const mesh_info&, in_kind<Kind>) {
  which.kinds &= of_kind(Kind).kinds;
  where << " in " << name_of(Kind);
}
template <class Which>
inline constexpr std::string_view axis_of_limit{};
template <fixed_string Axis>
inline constexpr std::string_view axis_of_limit<over<Axis>> = Axis.view();

template <const limited_number& What, std::int64_t Limit, class... Which>
struct limit_on_traffic {
  /// Returns the first axis of the limit that the mesh does not have. Returns an empty text if the mesh has all axes.
  static constexpr std::string_view unknown_axis(const mesh_info& mesh) {
    for (const auto axis : {std::string_view{}, axis_of_limit<Which>...})
      if (!axis.empty() && mesh.mask_of(axis) == 0) return axis;
    return {};
  }
  static constexpr text check(const plan_view& p, const mesh_info& mesh) {
    if (const auto axis = unknown_axis(mesh); !axis.empty())
      return text("`") << axis << "` is not an axis of the mesh; its axes are " << names_text(mesh);
    collective_filter which;
    text where;
    (narrow(which, where, mesh, Which{}), ...);
    return over_limit(p, mesh, What, which, Limit, where);
  }
};

template <class Limit>
struct budget_of;  // text check(plan, mesh): the error if the plan exceeds the limit, or an empty text

template <std::int64_t N, class... Which>
struct budget_of<max_bytes<N, Which...>> : limit_on_traffic<counted_bytes, N, Which...> {};
template <std::int64_t N, class... Which>
struct budget_of<max_messages<N, Which...>> : limit_on_traffic<counted_messages, N, Which...> {};
template <std::int64_t N, class... Which>
struct budget_of<max_collectives<N, Which...>> : limit_on_traffic<counted_collectives, N, Which...> {};
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
  if constexpr (requires { budget_of<Limit>::unknown_axis; })
    return !budget_of<Limit>::unknown_axis(Step::mesh_type::info).empty();
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

template <std::size_t N>
constexpr text list_text(const collectives<N>& collectives) {
  text t("collectives{");
  for (std::size_t i = 0; i < N; ++i)
    t << (i > 0 ? ", " : "") << name_of(collectives.items[i].kind) << "<\"" << collectives.items[i].axes.view() << "\">";
  return t << '}';
}

template <class Step, collectives Wanted>
struct other_collectives {
  /// Names the operator of the first collective that is missing in the list, or differs from it.
  static constexpr text make() {
    text t("the program has ");
    t << list_text(Step::collectives) << " and not " << list_text(Wanted);
    std::size_t n = 0;
    for (const auto& s : Step::view.steps) {
      if (!communicates(s)) continue;
      if (n >= Wanted.count || !(Step::collectives.items[n] == Wanted.items[n])) {
        const auto& node = Step::view.nodes[static_cast<std::size_t>(s.node)];
        return t << "; number " << static_cast<std::int64_t>(n + 1) << " is for " << graph::place(node.at, name_of(node.op));
      }
      ++n;
    }
    return t;
  }
};

template <class Step, collectives Wanted>
constexpr bool report_collectives() {
  if constexpr (Step::accepted) {
    if constexpr (!(Step::collectives == Wanted)) refuse<mistake::collectives, other_collectives<Step, Wanted>>();
  }
  return true;
}

}  // namespace detail

/// True if a compiled program keeps all limits. It reports no error; within_budget does.
template <class Step, class... Limits>
inline constexpr bool is_within_budget = (detail::is_within<Step, Limits>() && ...);

/// Checks that a compiled program keeps all limits.
///
/// **Errors.** Compile error if the program exceeds a limit, or a limit names an axis that the mesh does not have. The
/// text has both numbers and the most expensive operators with their lines.
/// **Example.**
///
///     static_assert(within_budget<step, max_bytes<64 * KiB>, max_bytes<0, over<"model">>, max_memory<4 * MiB>>);
///     static_assert(within_budget<step, max_collectives<0, in_kind<collective_kind::all_gather>>,
///                                 max_flops<1'000'000>>);
template <class Step, class... Limits>
inline constexpr bool within_budget = (detail::report_budget<Step, Limits>() && ...);

/// Checks that `step::collectives == Wanted`.
///
/// **Errors.** Compile error if the collectives differ. The text lists the collectives of the program, and names the
/// operator of the first difference.
/// **Example.**
///
///     static_assert(same_collectives<step, collectives{all_gather<"data">, all_reduce<"model">}>);
template <class Step, collectives Wanted>
inline constexpr bool same_collectives = detail::report_collectives<Step, Wanted>();

/// The same as within_budget for a program that was compiled at run time.
///
/// **Errors.** Throws gspmd::error with the text of the compile error.
/// **Example.**
///
///     check_budget<max_bytes<64 * KiB>, max_messages<6, over<"model">>>(program);
template <class... Limits, class Program>
void check_budget(const Program& program) {
  const auto hold_to = [&program](const auto& check) {
    const auto t = check(program.view(), program.mesh_info());
    if (!t.empty()) throw error(std::string(t.view()));
  };
  (hold_to(detail::budget_of<Limits>::check), ...);
}

}  // namespace gspmd
