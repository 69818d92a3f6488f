// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/automatic_axes.hpp"
#include "gspmd/detail/passes/typed/remedies.hpp"
#include "gspmd/detail/passes/typed/written_steps.hpp"

namespace gspmd::detail {

/// Brings a value to a type that is specified completely: for reshards, `out`, gradients in the backward pass, and
/// required result types.
class reshard_typer {
 public:
  explicit constexpr reshard_typer(program_typer& t) : t_(t), writes_(t) {}

  /// Types a reshard of the global view. Dims and axes that the reshard does not name keep their states.
  constexpr void visit_reshard(int i) {
    const node& n = t_.at(i);
    const requested_state requested =
        requested_state::is_one(n) ? requested_state::of(n) : requested_state{n.annotation.layout, 0, true};
    const axis_mask automatic = t_.on_mesh.automatic_axes;
    if (automatic != 0 && !leaves_automatic_axes(i, requested)) return;
    if (names_local_axes(
            i, requested.layout.split_axes() | requested.layout.partial | requested.layout.replica | requested.invariant))
      return;
    value_type wanted = t_.type(n.operands[0]);
    if (const axis_mask named = requested.layout.split_axes();
        requested.has_splits && (named == 0 || (named & ~automatic) != 0)) {
      for (int a = 0; a < t_.mesh().axis_count(); ++a)
        if (wanted.on(a).is == state::shard && !t_.is_local(a) && (n.annotation.open & dim_bit(wanted.on(a).dim)) == 0)
          wanted.set(a, {state::invariant});  // an open dim keeps its state: the dim of the examples of a vmap
      for (const auto& use : requested.layout.splits)
        if (!t_.is_automatic(use.axis)) wanted.set(use.axis, shard_of(use.dim));
    }
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      if ((requested.layout.partial & axis_bit(a)) != 0) wanted.set(a, partial_by(requested.layout.reduced_by));
      if ((requested.layout.replica & axis_bit(a)) != 0) wanted.set(a, {state::replica});
      if ((requested.invariant & axis_bit(a)) != 0) wanted.set(a, {state::invariant});
    }
    if (!requested.is_out || fits_out(i, wanted)) reshard_to(i, wanted, !requested.is_out);
  }
  /// Types an annotation in a region of a program without types, for axes that the region leaves to the planner.
  constexpr void visit_annotation(int i) {
    const node& n = t_.at(i);
    if (!names_local_axes(i, n.annotation.layout.split_axes() | n.annotation.layout.partial)) t_.type(i) = t_.type(n.operands[0]);
  }
  /// Types a gradient that passes back through a transition: it has the dual state of the differentiated value.
  constexpr void visit_cotangent(int i) {
    const value_type& of = t_.type(t_.at(i).operands[1]);
    const cotangent is = cotangent_of(t_.at(i));
    if (is == cotangent::found) return visit_found(i, of);
    if (is == cotangent::seed)
      for (int a = 0; a < t_.mesh().axis_count(); ++a) {
        if (of.on(a).is != state::replica && of.on(a).is != state::varying &&
            !(of.on(a).is == state::partial && of.on(a).reduced_by != monoid::add))
          continue;
        t_.refuse(mode_mistake::loss_state, i, 1, a,
                  text("the loss is ")
                      << long_text(of.on(a)) << " over `" << axes_text(t_.on_mesh, axis_bit(a))
                      << "`: begun with 1 on each device, its gradient would be another one; make it a partial sum, or "
                         "invariant");
        return;
      }
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      if (of.on(a).is != state::partial || of.on(a).reduced_by == monoid::add) continue;
      t_.refuse(mode_mistake::partial_nonlinear, i, 1, a,
                text("an operand that is ")
                    << long_text(of.on(a)) << " over `" << axes_text(t_.on_mesh, axis_bit(a))
                    << "` has no gradient, because the device of the taken partial value is unknown; stop_gradient it");
      return;
    }
    value_type wanted = of;
    for (int a = 0; a < t_.mesh().axis_count(); ++a) wanted.hold(a, dual(of.on(a)));
    for (int a = 0; a < t_.mesh().axis_count(); ++a)
      if (t_.type(t_.at(i).operands[0]).on(a).is == state::constant && wanted.on(a).is != state::partial &&
          wanted.on(a).is != state::shard)
        wanted.hold(a, {state::constant});
    reshard_to(i, wanted);
  }
  /// Types a gradient as it is, with the parts of the differentiated value.
  constexpr void visit_found(int i, const value_type& of) {
    value_type found = t_.type(t_.at(i).operands[0]);
    const axis_mask cut = found.cut_axes();
    found.change_parts([&](local_parts& parts) {
      parts.take(of.parts, cut);
      return true;
    });
    t_.type(i) = found;
  }
  /// Types a reshard whose type is specified completely. It may not change anything along local axes.
  constexpr void visit_wanted(int i, const value_type& wanted) {
    const value_type& now = t_.type(t_.at(i).operands[0]);
    axis_mask changed = 0;
    for (int a = 0; a < t_.mesh().axis_count(); ++a)
      if (!(now.on(a) == wanted.on(a)) && now.on(a).is != state::constant) changed |= axis_bit(a);
    if (!names_local_axes(i, changed, t_.local_here)) reshard_to(i, wanted);
  }
  /// Brings the operand of node `i` to `wanted`, on the path of the automatic mode. If `moves` is true, elements may
  /// be sent to devices that do not hold them. Otherwise partial values are reduced and parts are kept, and nothing
  /// else moves.
  constexpr void reshard_to(int i, const value_type& wanted, bool moves = true) {
    const int operand = t_.at(i).operands[0];
    const value_type now = t_.type(operand);
    const extents& shape = t_.at(i).shape;
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      if (now.on(a) == wanted.on(a)) continue;
      if (row_between(now.on(a), wanted.on(a)) < 0) {
        t_.refuse(mode_mistake::wrong_target, i, 0, a,
                  text("from ") << short_text(now.on(a)) << " to " << short_text(wanted.on(a)) << " no transition leads");
        return;
      }
    }
    if (!moves && !lies_inside(t_.mesh(), shape, sharding{now.layout.splits}, sharding{wanted.layout.splits})) {
      t_.refuse(mode_mistake::axis_order, i, 0, -1,
                text("the operand is ") << t_.words_of(now, shape.count) << ", and no steps lead to "
                                        << t_.words_of(wanted, shape.count)
                                        << " where nothing else may move; reshard the result");
      return;
    }
    value_type& made = t_.type(i);
    made = now;
    made.layout.splits = wanted.layout.splits;
    for (int a = 0; a < t_.mesh().axis_count(); ++a)
      if (!(now.on(a) == wanted.on(a))) made.hold(a, wanted.on(a));
    writes_.note_reshard(i, now, wanted);
  }
  /// Cuts a value to the type that a result must have, without communication.
  constexpr void cut_for(int i, const value_type& wanted) {
    value_type& t = t_.type(i);
    value_type cut = t;
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      const auto is = t.on(a), to = wanted.on(a);
      const bool is_equal =
          is.is == state::constant || (!is_floating(t_.at(i).type) && without_gradient(is).is == state::constant);
      const bool is_same = is == to || (t_.is_local(a) && is.is == state::shard && to.is == state::varying);
      const bool is_chunk = t_.is_local(a) && is.is == state::varying && to.is == state::shard;
      const bool is_free =
          (is_equal && to.is != state::partial) || (!t_.is_local(a) && is.is == state::replica && to.is == state::shard);
      if (!is_same && !is_free && !is_chunk) {
        typed_mistake& m = t_.refuse(mode_mistake::out_spec_mismatch, i, -1, a,
                                     text("the result is ") << t_.words_of(t, t_.at(i).shape.count) << ", not "
                                                            << t_.words_of(wanted, t_.at(i).shape.count)
                                                            << ": only equal data without a sum in its gradient is cut for that");
        if (const int row = row_between(is, to); row >= 0)
          m.remedies.push_back(way_for_result(row, is, to, wanted, t_.at(i).shape.count, a));
        t.is_known = false;
        return;
      }
      if (t_.is_local(a)) cut.hold(a, is_equal && to.is == state::shard ? is : to);
      else if (!(is == to)) cut.set(a, to);
    }
    if (!(cut.layout.splits == wanted.layout.splits)) {
      t_.refuse(mode_mistake::axis_order, i, -1, -1,
                text("the result is ") << t_.words_of(cut, t_.at(i).shape.count) << ", not "
                                       << t_.words_of(wanted, t_.at(i).shape.count) << ": axes split a dim in another order");
      t.is_known = false;
      return;
    }
    for (int d = 0; d < t_.at(i).shape.count; ++d) {
      const auto order = wanted.parts.order_of(d);
      if (t.parts.ends_with(d, order)) continue;
      t_.refuse(mode_mistake::axis_order, i, -1, order[0],
                text("dim ") << d << " of the result is cut by " << order_text(t_.on_mesh, t.parts.order_of(d)) << ", not by "
                             << order_text(t_.on_mesh, order));
      t.is_known = false;
      return;
    }
    if (!writes_.holds_it(i, 0, t, cut)) {
      t.is_known = false;
      return;
    }
    t = cut;
  }

 private:
  /// Returns true if node `i` only splits dims over automatic axes, and specifies no other state along them.
  constexpr bool leaves_automatic_axes(int i, const requested_state& requested) {
    sharding s = requested.layout;
    s.partial |= requested.invariant;
    const text what = automatic_mistake(t_.on_mesh, t_.at(i).shape, s);
    if (what.empty()) return true;
    t_.refuse(((s.partial | s.replica) & t_.on_mesh.automatic_axes) != 0 ? mode_mistake::axis_mode : mode_mistake::axis_order, i,
              0, -1, what);
    return false;
  }
  /// Refuses node `i` if it names axes that are local at the node. Returns true if it does.
  constexpr bool names_local_axes(int i, axis_mask named) { return names_local_axes(i, named, t_.at(i).local_axes); }
  constexpr bool names_local_axes(int i, axis_mask named, axis_mask local_here) {
    const axis_mask local = named & local_here;
    if (local == 0) return false;
    t_.refuse(mode_mistake::axis_mode, i, 0, -1,
              text("names `") << axes_text(t_.on_mesh, local)
                              << "`, which is local here: a collective, or a state, is written in a manual region");
    return true;
  }
  /// Returns true if an operator's result may leave it as `wanted`: partial values may get any state, and other axes
  /// must stay or be cut.
  constexpr bool fits_out(int i, const value_type& wanted) {
    const value_type& is = t_.type(t_.at(i).operands[0]);
    const int rank = t_.at(i).shape.count;
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      const auto from = is.on(a), to = wanted.on(a);
      const bool is_cut =
          (from.is == state::constant && to.is != state::partial) || (from.is == state::replica && to.is == state::shard);
      if (from == to || from.is == state::partial || is_cut) continue;
      typed_mistake& m = t_.refuse(mode_mistake::out_spec_mismatch, i, -1, a,
                                   text("the result is ") << t_.words_of(is, rank) << ", and `out` is "
                                                          << t_.words_of(wanted, rank) << "; `out` only reduces a partial sum");
      m.remedies.push_back(reshard_text(t_.on_mesh, wanted.layout, rank, a, to) << "(the result)");
      return false;
    }
    return true;
  }
  [[nodiscard]] constexpr text way_for_result(int row, const axis_state& is, const axis_state& to, const value_type& wanted,
                                              int rank, int a) const {
    if (!t_.is_local(a)) return reshard_text(t_.on_mesh, wanted.layout, rank, a, to) << "(the result)";
    return text(name_of(transitions[row].by)) << " the result from " << short_text(is) << " to " << short_text(to) << " over `"
                                              << axes_text(t_.on_mesh, axis_bit(a)) << '`';
  }

  program_typer& t_;
  step_writer writes_;
};

}  // namespace gspmd::detail
