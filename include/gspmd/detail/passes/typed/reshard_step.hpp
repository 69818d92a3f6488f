// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/passes/typed/program_typer.hpp"

namespace gspmd::detail {

/// A row of the table along some axes, on the way of a value from its type to another one; no axes: none can be taken.
struct reshard_row {
  int row = -1;
  state_change change{transition_kind::convert, 0, {}, {}};
  value_type after;
};

/// Finds the way of a value of the global view from its type to any other one, a step at a time. One rule: an axis moves only where it is the
/// innermost of its dim, and comes to a dim where the axes that it finds there are those that split it outside of this one in the end.
///
///     [x, _] to [y, _]      all_gather over x, then each device keeps its part along y
///     [x, y] to [y, x]      all_gather over x, all_to_all over y, then each device keeps its part along x
///
/// Steps that leave less come first: parts are kept, sums scattered, then axes exchanged, then gathered. Where none of these leads on, an
/// axis that stands in the way is gathered, and cut again later. Uneven parts that do not lie inside of each other are cut at once, of what is
/// whole.
class reshard_walk {
 public:
  /// `goes_round`: an axis may be gathered that is cut again later.
  constexpr reshard_walk(const program_typer& t, int i, const value_type& now, const value_type& wanted, bool goes_round)
      : t_(t), shape_(t.at(i).shape), now_(now), wanted_(wanted), goes_round_(goes_round) {}

  /// Returns the row that leads from one state to another, whichever kind of transition it is; -1: none does.
  [[nodiscard]] static constexpr int row_between(const axis_state& from, const axis_state& to) {
    const state is = from.is == state::constant ? (to.is == state::replica ? state::invariant : state::replica) : from.is;
    for (const transition_kind by : {transition_kind::convert, transition_kind::all_gather, transition_kind::all_to_all,
                                     transition_kind::all_reduce, transition_kind::reduce_scatter, transition_kind::reinterpret})
      if (const int row = row_of(by, is, to.is); row >= 0) return row;
    return -1;
  }

  /// Returns the next step of the way.
  [[nodiscard]] constexpr reshard_row next() const {
    constexpr device_action order[] = {device_action::nothing,    device_action::keep_own, device_action::keep_first,
                                       device_action::gather_sum, device_action::sum,      device_action::exchange,
                                       device_action::gather,     device_action::pad_zeros};
    for (const device_action d : order)
      for (int a = 0; a < t_.mesh().axis_count(); ++a) {
        if (now_.on(a) == wanted_.on(a)) continue;
        const int row = row_between(now_.on(a), wanted_.on(a));
        if (transitions[row].forward != d) continue;
        if (reshard_row step = step_along(row, now_.on(a), wanted_.on(a)); step.change.axes != 0) return step;
      }
    return goes_round_ ? out_of_the_way() : reshard_row{};
  }

 private:
  using axis_list = inline_vec<std::int8_t, max_axes>;

  [[nodiscard]] static constexpr axis_list axes_on(const value_type& t, int dim) {
    axis_list axes;
    for (const auto& use : t.layout.splits)
      if (use.dim == dim) axes.push_back(use.axis);
    return axes;
  }
  /// Whether the axes that split a dim now are the outer ones of those that do in the end.
  [[nodiscard]] constexpr bool begins_as_wanted(const axis_list& now, const axis_list& wanted) const {
    if (now.count > wanted.count) return false;
    for (int k = 0; k < now.count; ++k)
      if (now[k] != wanted[k]) return false;
    return true;
  }
  [[nodiscard]] constexpr bool is_global_split(const axis_state& s, int axis) const {
    return s.is == state::shard && !t_.is_local(axis);
  }
  /// The axes that may go from one state to the other together.
  [[nodiscard]] constexpr reshard_row step_along(int row, const axis_state& from, const axis_state& to) const {
    axis_list going;
    int one = -1;
    for (int a = 0; a < t_.mesh().axis_count(); ++a)
      if (now_.on(a) == from && wanted_.on(a) == to && (one < 0 || t_.is_local(a) == t_.is_local(one))) {
        if (one < 0) one = a;
        going.push_back(static_cast<std::int8_t>(a));
      }
    if (one < 0) return {};
    if (is_global_split(to, one)) {  // in the order of the end, and no farther than the axes that the dim lacks next
      const axis_list there = axes_on(now_, to.dim), all = axes_on(wanted_, to.dim);
      if (!begins_as_wanted(there, all)) return {};
      axis_list arrive;
      for (int k = there.count; k < all.count && now_.on(all[k]) == from; ++k) arrive.push_back(all[k]);
      going = arrive;
    } else if (is_global_split(from, one)) {
      axis_list leave;
      const axis_list all = axes_on(now_, from.dim);
      for (int k = all.count - 1; k >= 0 && wanted_.on(all[k]) == to; --k) leave.push_back(all[k]);
      going = leave;
    }
    for (; going.count > 0; --going.count) {
      axis_mask axes = 0;
      for (const auto a : going) axes |= axis_bit(a);
      if (is_global_split(from, one) && cut_further(now_.layout.splits, axes) >= 0) continue;
      reshard_row step = taken(row, from, to, axes);
      if (step.change.axes != 0) return step;
    }
    return {};
  }
  /// A step, if every device has what it holds after it when only these axes exchange something.
  [[nodiscard]] constexpr reshard_row taken(int row, const axis_state& from, const axis_state& to, axis_mask axes) const {
    reshard_row step{row, {transitions[row].by, axes, from, to}, now_};
    for (int a = 0; a < t_.mesh().axis_count(); ++a)
      if ((axes & axis_bit(a)) != 0) step.after.set(a, to);
    if (to.is == state::shard)
      for (const auto& use : wanted_.layout.splits)
        if ((axes & axis_bit(use.axis)) != 0) step.after.set(use.axis, to);
    const axis_mask exchanged = transitions[row].forward == device_action::keep_own || from.is == state::constant ? 0 : axes;
    const axis_mask over = movement_axes(t_.mesh(), shape_, sharding{now_.layout.splits}, sharding{step.after.layout.splits});
    if ((over & ~exchanged) != 0) step.change.axes = 0;
    return step;
  }
  /// Gathers what stands in the way: of the dims that axes must leave the innermost one, or where its parts are uneven as many as it takes, and
  /// of all dims the one of which the least is sent. Where no axis must leave, uneven parts do not lie inside those of the axes around them:
  /// a dim is gathered whole, and cut at once.
  [[nodiscard]] constexpr reshard_row out_of_the_way() const {
    for (const bool must_leave : {true, false}) {
      if (reshard_row step = must_leave ? reshard_row{} : made_alike(); step.change.axes != 0) return step;
      reshard_row best;
      std::int64_t least = 0;
      for (int d = 0; d < shape_.count; ++d) {
        const axis_list now = axes_on(now_, d), all = axes_on(wanted_, d);
        if (now.count == 0 || now == all || begins_as_wanted(now, all) == must_leave) continue;
        const reshard_row step = gathered(now, must_leave ? 1 : now.count);
        if (step.change.axes == 0) continue;
        const sharding before{now_.layout.splits}, after{step.after.layout.splits};
        const auto sent =
            bytes_sent(t_.mesh(), movement(shape_, before, after, movement_axes(t_.mesh(), shape_, before, after)), 1);
        if (best.change.axes != 0 && sent >= least) continue;
        best = step;
        least = sent;
      }
      if (best.change.axes != 0) return best;
    }
    return {};
  }
  /// An axis that is to be cut at once with others is brought to their state: a sum is added up, a constant, or a replica beside
  /// equal data, is made equal.
  [[nodiscard]] constexpr reshard_row made_alike() const {
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      if (!is_global_split(wanted_.on(a), a)) continue;
      bool is_other = now_.on(a).is == state::partial || now_.on(a).is == state::constant;
      for (int b = 0; b < t_.mesh().axis_count() && now_.on(a).is == state::replica; ++b)
        is_other = is_other || (wanted_.on(b) == wanted_.on(a) && now_.on(b).is == state::invariant);
      if (!is_other) continue;
      const axis_state whole = now_.on(a).is == state::partial ? whole_beside(a) : axis_state{state::invariant};
      return taken(row_between(now_.on(a), whole), now_.on(a), whole, axis_bit(a));
    }
    return {};
  }
  /// The state in which an axis waits to be cut together with others.
  [[nodiscard]] constexpr axis_state whole_beside(int axis) const {
    for (int b = 0; b < t_.mesh().axis_count(); ++b)
      if (wanted_.on(b) == wanted_.on(axis) && now_.on(b).is == state::replica) return {state::replica};
    return {state::invariant};
  }
  /// The last ones of the axes that split a dim, so many of them or more, are gathered.
  [[nodiscard]] constexpr reshard_row gathered(const axis_list& axes, int least) const {
    const int last = axes[axes.count - 1];
    const axis_state whole = whole_beside(last);
    axis_mask going = 0;
    for (int k = axes.count - 1; k >= 0; --k) {
      going |= axis_bit(axes[k]);
      if (axes.count - k < least) continue;
      const reshard_row step = taken(row_between(now_.on(last), whole), now_.on(last), whole, going);
      if (step.change.axes != 0) return step;
    }
    return {};
  }

  const program_typer& t_;
  const extents& shape_;
  const value_type &now_, &wanted_;
  bool goes_round_;
};

}  // namespace gspmd::detail
