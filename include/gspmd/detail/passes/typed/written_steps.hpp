// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "gspmd/detail/passes/choose/written_steps.hpp"
#include "gspmd/detail/passes/typed/program_typer.hpp"

namespace gspmd::detail {

/// Records the steps between states of a program: rows of the table, the bytes that a device sends, and whether they
/// are allowed.
class step_writer {
 public:
  explicit constexpr step_writer(program_typer& t) : t_(t) {}

  /// Returns the bytes that a device sends for this action between these types of the global view, as plans count them.
  [[nodiscard]] constexpr std::int64_t sent(device_action d, int i, axis_mask axes, const value_type& from,
                                            const value_type& to) const {
    const extents& shape = t_.at(i).shape;
    const sharding before{from.layout.splits}, after{to.layout.splits};
    const auto size = bytes_of(t_.at(i).type);
    if (d == device_action::sum || d == device_action::gather_sum)
      return bytes_sent(t_.mesh(), reduction{shape, before, after, axes}, size);
    if (d != device_action::gather && d != device_action::exchange) return 0;
    return bytes_sent(t_.mesh(), movement(shape, before, after, movement_axes(t_.mesh(), shape, before, after)), size);
  }
  /// The same for the local view, from the numbers of elements that a device holds.
  [[nodiscard]] constexpr std::int64_t sent(device_action d, int i, axis_mask axes, std::int64_t before,
                                            std::int64_t after) const {
    return bytes_of(d, t_.mesh().size_of(axes), before * bytes_of(t_.at(i).type), after * bytes_of(t_.at(i).type));
  }
  [[nodiscard]] constexpr typed_step row_step(int i, int row, const state_change& c, std::int64_t forward,
                                              std::int64_t backward) const {
    typed_step s{i, c.axes};
    s.does = transitions[row].forward;
    s.is_planned = s.does != device_action::nothing || c.to.is == state::partial;
    s.sends = collective_of(s.does);
    s.sent = forward;
    if (is_floating(t_.at(i).type) && is_of_sums(c.from) && is_of_sums(c.to)) {
      s.sends_back = collective_of(transitions[row].backward);
      s.sent_back = backward;
    }
    return s;
  }
  constexpr void note(int i, int row, const state_change& c, std::int64_t forward, std::int64_t backward) {
    note(row_step(i, row, c, forward, backward));
  }
  constexpr void note(const typed_step& s) {
    refuse_if_devices_part(s);
    t_.steps.push_back(s);
  }
  /// Calls `visit(from, step)` for the steps between two types. Partial values of several monoids are reduced one
  /// monoid after the other. Defined before its users: Clang 16 does not instantiate a member template for a constant
  /// if its definition follows them.
  template <class Visit>
  constexpr void for_each_step(int i, const value_type& from, const value_type& to, Visit visit) const {
    const axis_mask closed = t_.local_here | t_.on_mesh.automatic_axes;
    sharding at = from.layout;
    const auto go = [&](const sharding& reached_layout) {
      for_each_reshard_step(t_.mesh(), t_.on_mesh.request.network, t_.at(i).shape, at, reached_layout, closed,
                            bytes_of(t_.at(i).type), visit);
      at = reached_layout;
    };
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      if ((at.partial & axis_bit(a)) == 0 || from.on(a) == partial_by(from.layout.reduced_by)) continue;
      sharding next = at;
      next.partial &= ~axis_bit(a) | to.layout.partial;
      at.reduced_by = from.on(a).reduced_by;
      go(next);
      at.reduced_by = from.layout.reduced_by;
    }
    go(to.layout);
  }
  /// Records the steps of a reshard of the global view and of its gradient. A step along an axis of one device is
  /// listed with 0 bytes. So a program is accepted on one device only if it is accepted on more.
  constexpr void note_reshard(int i, const value_type& from, const value_type& to) {
    value_type back = to, back_to = from;
    bool has_gradient = is_floating(t_.at(i).type);
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      const axis_state is = from.on(a), becomes = to.on(a);
      has_gradient = has_gradient && (is == becomes || (is_of_sums(is) && is_of_sums(becomes)));
      back.hold(a, dual(becomes));
      back_to.hold(a, dual(is));
      if (is.is == state::constant) {  // no device has a partial value of its gradient
        back.set(a, {state::invariant});
        back_to.set(a, {state::invariant});
      } else if (!(is == becomes) && !t_.is_automatic(a) && (t_.is_local(a) || t_.mesh().sizes[a] == 1)) {
        const int row = row_between(is, becomes);
        const auto held = local_elements(t_.mesh(), t_.at(i).shape, from.layout);
        typed_step s = row_step(i, row, {transitions[row].by, axis_bit(a), is, becomes}, 0,
                                sent(transitions[row].backward, i, axis_bit(a), held, held));
        s.is_planned = false;
        note(s);
      }
    }
    const auto step_of = [&](const sharding& at, const reshard_step& by) {
      typed_step s{i, by.axes};
      if (by.what == reshard_step::kind::move || by.what == reshard_step::kind::reduce)
        s.sends = name_of(kind_of_step(t_.mesh(), t_.at(i).shape, at, by));
      s.sent = step_bytes(t_.mesh(), t_.at(i).shape, at, by, bytes_of(t_.at(i).type));
      s.is_planned = s.is_searched = true;
      return s;
    };
    for_each_step(i, from, to, [&](const sharding& at, const reshard_step& by) { note(step_of(at, by)); });
    if (!has_gradient) return;
    const auto first = t_.steps.size();
    for_each_step(i, back, back_to, [&](const sharding& at, const reshard_step& by) {
      typed_step s = step_of(at, by);
      if (s.sends.empty()) return;
      s.sends_back = s.sends;
      s.sent_back = s.sent;
      s.sends = {};
      s.sent = 0;
      s.is_planned = false;
      note(s);
    });
    std::reverse(t_.steps.begin() + static_cast<std::ptrdiff_t>(first), t_.steps.end());  // gradients list the steps backwards
  }
  /// Records an exchange that brings elements of other devices to the parts of an operator: `bytes` on each device,
  /// forward and backward.
  constexpr void note_exchange(int i, axis_mask axes, std::int64_t bytes) {
    constexpr int row = row_of(transition_kind::permute, state::varying, state::varying);
    note(i, row, {transition_kind::permute, axes, {state::varying}, {state::varying}}, bytes, bytes);
  }
  constexpr void refuse_if_devices_part(const typed_step& s) {
    const std::string_view sent = s.sends;
    if (sent.empty() && s.sends_back.empty()) return;
    const axis_mask parting = t_.diverging_at(s.node) & s.axes;
    if (parting == 0) return;
    int a = 0;
    while ((parting & axis_bit(a)) == 0) ++a;
    t_.refuse(mode_mistake::predicate_varying, s.node, 0, a,
              text("devices along `")
                  << axes_text(t_.on_mesh, axis_bit(a)) << "` may take different branches here, and "
                  << (sent.empty() ? "the gradient of this" : "this") << " is an " << (sent.empty() ? s.sends_back : sent)
                  << " of all devices, so some would wait for ever; move it outside, or make the predicate equal on all devices");
  }
  /// Returns true if only the axes `exchanged` need to communicate, so that each device has all its elements after a
  /// step of the global view.
  constexpr bool holds_it(int i, axis_mask exchanged, const value_type& from, const value_type& to) {
    const axis_mask over = movement_axes(t_.mesh(), t_.at(i).shape, sharding{from.layout.splits}, sharding{to.layout.splits});
    const axis_mask others = over & ~exchanged;
    if (others == 0) return true;
    t_.refuse(mode_mistake::needs_communication, i, 0, -1,
              text("of ") << shape_text(t_.at(i).shape) << " the uneven parts of " << t_.words_of(to, t_.at(i).shape.count)
                          << " are not inside those of " << t_.words_of(from, t_.at(i).shape.count)
                          << ": elements would move over `" << axes_text(t_.on_mesh, others)
                          << "` too; bring it to another dim, or make it whole first");
    return false;
  }
  /// Types a transition in the global view, and records its step. The axes that leave a dim must be its last axes.
  constexpr bool change(int i, int row, const state_change& c, const value_type& from, value_type& to) {
    for (int a = 0; a < t_.mesh().axis_count(); ++a)
      if ((c.axes & axis_bit(a)) != 0) to.set(a, c.to);
    if (const int inner = c.from.is == state::shard ? cut_further(from.layout.splits, c.axes) : -1; inner >= 0) {
      t_.refuse(mode_mistake::axis_order, i, 0, inner,
                text("dim ") << c.from.dim << " is split " << t_.words_of(from, t_.at(i).shape.count)
                             << ", and other axes cut the parts of `" << axes_text(t_.on_mesh, axis_bit(inner))
                             << "` further; begin with the last ones");
      return false;
    }
    if (!holds_it(i, transitions[row].forward == device_action::keep_own ? 0 : c.axes, from, to)) return false;
    note(i, row, c, sent(transitions[row].forward, i, c.axes, from, to), sent(transitions[row].backward, i, c.axes, to, from));
    return true;
  }

 private:
  program_typer& t_;
};

}  // namespace gspmd::detail
