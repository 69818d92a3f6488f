// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/dynamic/strict_program.hpp"
#include "gspmd/modes/manual.hpp"

namespace gspmd {

/// The action of the devices in a transition, on the bytes that they hold: `device_action::sum`,
/// `device_action::gather`.
using detail::device_action;

namespace dynamic {

/// Returns the action of the devices in a transition between these states. The transition must exist.
inline device_action action_of(transition_kind by, axis_state from, axis_state to) {
  return detail::transitions[detail::state_change{by, 0, from, to}.row()].forward;
}

/// Builds programs that write their own communication, with manual regions, if the states are known at run time.
///
/// Check the program with a `strict_program` first: it finds all mistakes, but cannot plan regions. This class types
/// the program again at compilation, and throws gspmd::error there for a mistake. The program sends only the
/// communication that was written.
///
/// **Threads.** Only the thread of the builder may use it.
/// **Example.**
///
///     dynamic::builder b(dynamic::mesh({{"x", 2}}));
///     dynamic::written_program p(b);
///     const dynamic::value_states rows{{{state::shard, 0}}, {{0, 0}}}, whole{{{state::invariant}}};
///     const value x = b.input(dynamic::input<float>({4, 2}));
///     p.input(x, rows);
///     const auto y = p.region("x", {rows}, {whole}, {x}, [&](const std::vector<value>& in) {
///       return std::vector<value>{
///           p.transition(in[0], transition_kind::all_gather, "x", {state::shard, 0}, {state::invariant})};
///     });
///     b.output(y[0]);
class written_program {
 public:
  explicit written_program(builder& b) : b_(b), typed_(b, "") {}

  /// Sets the states of an input.
  void input(value x, const value_states& s) { typed_.input(x, s); }

  /// Changes a value from one state to another along `axes`, for example "x,y": axes of the open region, or of the
  /// global view. For a permutation, `pairs` lists source and target devices, row-major over the axes, at most 64
  /// devices. The table of transitions states the communication.
  value transition(value x, transition_kind by, std::string_view axes, axis_state from, axis_state to,
                   const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs = {}, location at = location::current()) {
    const auto over = typed_.axes_named(axes);
    detail::device_shift shift{};
    if (by == transition_kind::permute) {
      const auto n = b_.mesh().info().shape.size_of(over);
      if (n > detail::max_placed) {
        b_.graph().fail(at, "permute", detail::mistake::states,
                        detail::text("a list names ")
                            << int{detail::max_placed} << " devices at most, and along these axes there are " << n);
        return x;
      }
      shift.is = detail::device_shift::kind::listed;
      for (std::int64_t i = 0; i < n; ++i) shift.from.push_back(-1);
      for (const auto& [source, target] : pairs) shift.from[static_cast<int>(target)] = static_cast<std::int8_t>(source);
    }
    const bool is_local = over != 0 && (over & ~b_.graph().open_local) == 0;
    return made(detail::add_transition(b_.graph(), x.id(), {by, over, from, to}, is_local, at, shift));
  }
  /// Returns f(arguments...), and permits its operators to exchange elements along `axes`: see gspmd::with_exchange.
  template <class F, class... Arguments>
  auto with_exchange(std::string_view axes, F f, const Arguments&... arguments) {
    return typed_.with_exchange(axes, f, arguments...);
  }
  /// Returns the position of a device along an axis of the open region, as a varying value.
  value axis_index(std::string_view axis, location at = location::current()) {
    int a = 0;
    while ((typed_.axes_named(axis) & detail::axis_bit(a)) == 0) ++a;
    return made(detail::add_axis_index(b_.graph(), a, at));
  }
  /// Returns the value with these states along the axes of the global view. The types decide whether the communication
  /// is permitted.
  value bring(value x, const value_states& s, location at = location::current()) {
    return made(detail::add_requested_state(b_.graph(), x.id(), requested(s), at));
  }
  /// Returns the same value as a separate node.
  value same(value x, location at = location::current()) {
    return made(detail::add_requested_state(b_.graph(), x.id(), {{}, 0, false, true}, at));
  }

  /// Adds a manual region over `axes`. Calls `body` with the operands of one device, and returns its results. `takes`
  /// and `gives` are the states of each operand and result along all axes of the mesh.
  ///
  /// **Communication.** None at the boundary of the region.
  template <class Body>
  std::vector<value> region(std::string_view axes, const std::vector<value_states>& takes, const std::vector<value_states>& gives,
                            const std::vector<value>& operands, Body body, location at = location::current()) {
    auto& g = b_.graph();
    const auto local = typed_.axes_named(axes);
    detail::allow_manual_regions(g);
    std::vector<value> inside;
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const int brought = detail::add_requested_state(g, operands[k].id(), requested(takes[k]), at);
      inside.push_back(made(detail::add_enter(g, brought, local, layout(takes[k], local), at)));
      b_.label(operands[k].node().tag);  // the value inside the boundary keeps its label
    }
    std::vector<value> results = [&] {
      const detail::local_scope scope(g, g.open_local | local);
      return body(inside);
    }();
    for (std::size_t k = 0; k < results.size(); ++k)
      if (results[k].is_valid()) results[k] = made(detail::add_leave(g, results[k].id(), local, layout(gives[k], local), at));
    return results;
  }

 private:
  [[nodiscard]] value made(int id) { return id < 0 ? value{} : value{&b_.graph(), id}; }
  [[nodiscard]] static detail::sharding layout(const value_states& s, detail::axis_mask of) {
    return detail::part_along(s.type(0).layout, of);
  }
  [[nodiscard]] detail::requested_state requested(const value_states& s) const {
    return s.type(0).requested(b_.mesh().info(), ~b_.graph().open_local);
  }

  builder& b_;
  strict_program typed_;
};

}  // namespace dynamic
}  // namespace gspmd
