// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/typed/program_typer.hpp"

namespace gspmd::detail {

/// Writes down the steps between states that a program takes: rows of the table, what a device sends for them, and whether it may.
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
  /// The same of the local view, from the elements that a device holds.
  [[nodiscard]] constexpr std::int64_t sent(device_action d, int i, axis_mask axes, std::int64_t before,
                                            std::int64_t after) const {
    return bytes_of(d, t_.mesh().size_of(axes), before * bytes_of(t_.at(i).type), after * bytes_of(t_.at(i).type));
  }
  constexpr void note(int i, int row, const state_change& c, std::int64_t forward, std::int64_t backward) {
    typed_step s{i, row, c.axes, c.from, c.to, forward, 0};
    const bool has_gradient = is_floating(t_.at(i).type) && (c.from.is != state::partial || c.from.reduced_by == monoid::add) &&
                              (c.to.is != state::partial || c.to.reduced_by == monoid::add);
    const device_action back = has_gradient ? transitions[row].backward : device_action::nothing;
    s.is_sent_back = !collective_of(back).empty();
    refuse_if_devices_part(s);
    if (has_gradient) s.sent_back = backward;
    t_.steps.push_back(s);
  }
  /// Parts of an operator get what others hold: so many bytes on each device, and as many back.
  constexpr void note_exchange(int i, axis_mask axes, std::int64_t bytes) {
    constexpr int row = row_of(transition_kind::permute, state::varying, state::varying);
    note(i, row, {transition_kind::permute, axes, {state::varying}, {state::varying}}, bytes, bytes);
  }
  constexpr void refuse_if_devices_part(const typed_step& s) {
    const std::string_view sent = collective_of(transitions[s.row].forward);
    if (sent.empty() && !s.is_sent_back) return;
    const axis_mask parting = t_.diverging_at(s.node) & s.axes;
    if (parting == 0) return;
    int a = 0;
    while ((parting & axis_bit(a)) == 0) ++a;
    t_.refuse(
        mode_mistake::predicate_varying, s.node, 0, a,
        text("devices along `") << axes_text(t_.on_mesh, axis_bit(a)) << "` may go different ways here, and "
                                << (sent.empty() ? "the gradient of this" : "this") << " is an "
                                << (sent.empty() ? collective_of(transitions[s.row].backward) : sent)
                                << " of all of them: some would wait for ever; make it outside, or let the predicate be the same "
                                   "on all of them");
  }
  /// Sets axes to one state: those that split a dim then, minor to those that do so already and among them as `order` has them.
  constexpr void set_all(value_type& t, axis_mask axes, const axis_state& is, const value_type* order) const {
    for (int a = 0; a < t_.mesh().axis_count(); ++a)
      if ((axes & axis_bit(a)) != 0) t.set(a, is);
    if (order == nullptr || is.is != state::shard) return;
    for (const auto& use : order->layout.splits)
      if ((axes & axis_bit(use.axis)) != 0) t.set(use.axis, is);
  }
  /// Whether every device has what it holds after a step of the global view, when only these axes exchange something.
  constexpr bool holds_it(int i, axis_mask exchanged, const value_type& from, const value_type& to) {
    const axis_mask over = movement_axes(t_.mesh(), t_.at(i).shape, sharding{from.layout.splits}, sharding{to.layout.splits});
    const axis_mask others = over & ~exchanged;
    if (others == 0) return true;
    t_.refuse(mode_mistake::needs_communication, i, 0, -1,
              text("of ") << shape_text(t_.at(i).shape) << " the uneven parts of " << t_.words_of(to, t_.at(i).shape.count)
                          << " do not lie inside those of " << t_.words_of(from, t_.at(i).shape.count)
                          << ": elements would move over `" << axes_text(t_.on_mesh, others)
                          << "` too; bring it to another dim, or make it whole first");
    return false;
  }
  /// The same in the global view: the axes that leave a dim must be the last ones of it.
  constexpr bool change(int i, int row, const state_change& c, const value_type& from, value_type& to,
                        const value_type* order = nullptr) {
    set_all(to, c.axes, c.to, order);
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
