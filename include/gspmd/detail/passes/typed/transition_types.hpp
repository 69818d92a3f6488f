// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/passes/typed/written_steps.hpp"

namespace gspmd::detail {

/// Types a transition. The operand must have the state that the transition names.
class transition_typer {
 public:
  explicit constexpr transition_typer(program_typer& t) : t_(t), writes_(t) {}

  constexpr void visit(int i) {
    const node& n = t_.at(i);
    const state_change c = state_change::of(n);
    if (const axis_mask automatic = c.axes & t_.on_mesh.automatic_axes; automatic != 0) {
      t_.refuse(mode_mistake::axis_mode, i, n.operands.count == 0 ? -1 : 0, -1,
                text("`") << axes_text(t_.on_mesh, automatic)
                          << "` is automatic, so the planner chooses its communication; name it in a split");
      return;
    }
    if ((c.axes & ~t_.local_here) != 0 && t_.only_regions) {
      t_.refuse(mode_mistake::unbound_axis, i, 0, -1,
                text("`") << axes_text(t_.on_mesh, c.axes & ~t_.local_here) << "` is no axis of this manual region");
      return;
    }
    if (n.operands.count == 0) {
      value_type place = value_type::all_constant(t_.mesh());
      for (int a = 0; a < t_.mesh().axis_count(); ++a)
        if ((c.axes & axis_bit(a)) != 0) place.hold(a, {state::varying});
      if ((c.axes & ~t_.local_here) == 0) t_.type(i) = place;
      else t_.refuse(mode_mistake::axis_mode, i, -1, -1, "the place of a device on an axis is a thing of the local view");
      return;
    }
    const value_type& from = t_.type(n.operands[0]);
    const bool is_inside = c.axes != 0 && (c.axes & ~t_.local_here) == 0;
    if (!is_inside && (c.axes & t_.local_here) != 0) {
      t_.refuse(mode_mistake::axis_mode, i, 0, -1,
                text("`") << axes_text(t_.on_mesh, c.axes)
                          << "` are axes of the local view and of the global one; write two transitions");
      return;
    }
    const int rank = t_.at(n.operands[0]).shape.count;
    const text axes = axes_text(t_.on_mesh, c.axes);
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      if ((c.axes & axis_bit(a)) == 0 || is_named(from.on(a), c.from, t_.at(n.operands[0]).type, is_inside, n)) continue;
      text what(name_of(c.by));
      what << " from " << short_text(c.from) << " to " << short_text(c.to) << " over `" << axes << "`: the operand is "
           << long_text(from.on(a)) << " over `" << axes_text(t_.on_mesh, axis_bit(a)) << '`';
      if (c.from.is == state::partial && (from.on(a).is == state::replica || from.on(a).is == state::invariant))
        what << ", and a sum of equal data over n devices is n times the value";
      t_.refuse(mode_mistake::wrong_source, i, 0, a, what << "; name the state that it has");
      return;
    }
    for (const auto& [is, which] : {std::pair{c.from, 0}, std::pair{c.to, 1}})
      if (is.is == state::shard && (is.dim < 0 || is.dim >= (is_inside && which == 1 ? n.shape.count : rank))) {
        t_.refuse(
            mode_mistake::dim_out_of_range, i, 0, -1,
            text("dim ") << is.dim << " is not a dim of " << shape_text(t_.at(n.operands[0]).shape) << "; dims count from 0");
        return;
      }
    if (!is_inside && (c.from.is == state::varying || c.to.is == state::varying)) {
      t_.refuse(mode_mistake::axis_mode, i, 0, -1,
                "a value of the global view does not vary; name the dim that is sharded, S(d)");
      return;
    }
    for (const auto& is : {c.from, c.to})
      if (is.is == state::partial && !is_defined(is.reduced_by, n.type)) {
        t_.refuse(mode_mistake::wrong_target, i, 0, -1,
                  text(name_of(c.by)) << " from " << short_text(c.from) << " to " << short_text(c.to) << ": "
                                      << name_of(is.reduced_by) << " is not defined for " << name_of(n.type));
        return;
      }
    int row = c.row();
    if (row >= 0 && c.by == transition_kind::all_to_all && c.from.dim == c.to.dim) row = -1;
    if (c.from.is == state::constant && c.to.is == state::constant) row = -1;
    extents shape = t_.at(n.operands[0]).shape;
    if (row < 0 || (is_inside && !change_local_shape(c, t_.mesh().size_of(c.axes), shape))) {
      bool any = false;
      const state is = c.from.is == state::varying ? state::shard : c.from.is;
      for (const auto& t : transitions) any = any || (t.by == c.by && (t.from == is || t.from == c.from.is));
      const mode_mistake kind =
          row >= 0 || any || c.from.is == state::constant ? mode_mistake::wrong_target : mode_mistake::wrong_source;
      text what(name_of(c.by));
      what << " from " << short_text(c.from) << " to " << short_text(c.to);
      if (row >= 0)
        what << " of " << shape_text(t_.at(n.operands[0]).shape) << " cuts a dim into " << t_.mesh().size_of(c.axes)
             << " parts, which it has not";
      else what << " is no transition";
      t_.refuse(kind, i, 0, -1, what << "; " << known_rows(c.by));
      return;
    }
    value_type to = from;
    if (is_inside) {
      if (!n.in_gradient && !is_innermost(i, c, from.parts)) return;
      to.change_parts([&c](local_parts& parts) { return parts.change(c); });
      for (int a = 0; a < t_.mesh().axis_count(); ++a) {
        if ((c.axes & axis_bit(a)) == 0) continue;
        const bool is_of_cut =
            n.operands.count > 1 && (t_.type(n.operands[1]).cut_axes() & axis_bit(a)) != 0;  // the gradient of a cut value
        to.hold(a, is_of_cut ? axis_state{state::varying} : c.to);
      }
      const auto before = local_elements(t_.mesh(), t_.at(n.operands[0]).shape, from.layout);
      const auto after = local_elements(t_.mesh(), n.shape, from.layout);
      writes_.note(i, row, c, writes_.sent(transitions[row].forward, i, c.axes, before, after),
                   writes_.sent(transitions[row].backward, i, c.axes, after, before));
    } else if (!writes_.change(i, row, c, from, to)) {
      return;
    }
    if (!is_floating(n.type))
      for (int a = 0; a < t_.mesh().axis_count(); ++a) to.hold(a, without_gradient(to.on(a)));
    t_.type(i) = to;
  }

 private:
  /// Returns true if the moved parts are contiguous in the local view: they must be along the last axes of a dim.
  constexpr bool is_innermost(int i, const state_change& c, const local_parts& parts) {
    if (c.from.is != state::shard) return true;
    const int d = c.from.dim;
    inline_vec<std::int8_t, max_axes> moved;
    for (int a = 0; a < t_.mesh().axis_count(); ++a)
      if ((c.axes & axis_bit(a)) != 0) moved.push_back(static_cast<std::int8_t>(a));
    if (parts.ends_with(d, moved)) return true;
    const auto order = parts.order_of(d);
    const int last = order[order.count - 1];
    t_.refuse(mode_mistake::axis_order, i, 0, moved[0],
              text("dim ") << d << " is cut by " << order_text(t_.on_mesh, order) << ", and the parts along `"
                           << axes_text(t_.on_mesh, c.axes) << "` are not adjacent in it; begin with its last axis: "
                           << name_of(c.by) << " over `" << axes_text(t_.on_mesh, axis_bit(last)) << "` first");
    return false;
  }
  /// Returns true if a value has the state that a transition names. A constant has every state of equal data. In the
  /// local view a varying value can count as chunks of a dim, because nothing else is known about the value there.
  [[nodiscard]] constexpr bool is_named(const axis_state& is, const axis_state& named, dtype type, bool is_inside,
                                        const node& n) const {
    if (is == named) return true;
    if (n.local_axes != 0 &&
        is_inside) {  // in a manual region: a varying value can be summed, and a gradient consists of partial values
      if (named.is == state::partial && (is.is == state::varying || is.is == state::shard)) return true;
      if (n.in_gradient && is.is == state::constant) return true;
      if (n.in_gradient && is.is == state::replica && (named.is == state::varying || named.is == state::shard)) return true;
    }
    if (is_inside && (named.is == state::varying || named.is == state::shard))
      return is.is == state::varying || is.is == state::shard || (is.is == state::constant && named.is == state::varying);
    const bool is_equal = is.is == state::constant || (!is_floating(type) && without_gradient(is).is == state::constant);
    return is_equal && (named.is == state::constant || named.is == state::replica || named.is == state::invariant);
  }
  [[nodiscard]] static constexpr text known_rows(transition_kind by) {
    text t(name_of(by));
    t << " leads";
    bool is_first = true;
    for (const auto& row : transitions) {
      if (row.by != by) continue;
      t << (is_first ? " from " : ", ") << short_text({row.from}).view().substr(0, 1) << " to "
        << short_text({row.to}).view().substr(0, 1);
      is_first = false;
    }
    return t;
  }

  program_typer& t_;
  step_writer writes_;
};

}  // namespace gspmd::detail
