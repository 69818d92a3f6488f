// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/passes/typed/program_typer.hpp"
#include "gspmd/detail/passes/typed/remedies.hpp"

/// Values that the user has, made whole on an axis: the way out where none of them in another state there is one. Several are to be changed,
/// or another axis stands behind this one in its dim and has to leave it first.
namespace gspmd::detail {

/// A value in another type, and how that is written.
struct written_change {
  int node = 0;
  value_type after;
  text words;
  std::int64_t sent = 0, sent_back = 0;
};

/// The text of what the user calls `number`, which is node `x`, whole on an axis of the global view, with other dims or without; no words: it
/// is so already.
constexpr written_change made_whole(program_typer& t, int number, int x, int axis, state to, bool in_all_dims) {
  const value_type& before = t.type(x);
  const extents& shape = t.at(x).shape;
  written_change c{x, before, text("operand ") << number, 0, 0};
  const auto bytes_as = [&](const value_type& v) {
    return saturating_multiply(local_elements(t.mesh(), shape, v.layout), bytes_of(t.at(x).type));
  };
  const auto write = [&](const axis_state& is) {
    c.words = reshard_text(t.on_mesh, c.after.layout, shape.count, axis, is) << '(' << c.words << ')';
  };
  const axis_state is = before.on(axis);
  const auto size = t.mesh().sizes[axis];
  if (is.is == state::shard) {
    axis_mask leaving = 0, of_dim = 0;
    for (const auto& use : before.layout.splits) {
      if (use.dim != is.dim) continue;
      of_dim |= axis_bit(use.axis);
      if (use.axis == axis || leaving != 0) leaving |= axis_bit(use.axis);
    }
    const auto without = [&](axis_mask axes) {
      c.after = before;
      for (int a = 0; a < t.mesh().axis_count(); ++a)
        if ((axes & axis_bit(a)) != 0) c.after.set(a, {state::invariant});
      return (movement_axes(t.mesh(), shape, sharding{before.layout.splits}, sharding{c.after.layout.splits}) & ~axes) == 0;
    };
    if (in_all_dims) without(leaving = sharding{before.layout.splits}.split_axes());
    else if (!without(leaving)) without(leaving = of_dim);  // uneven parts
    write(is);
    c.sent = bytes_of(device_action::gather, t.mesh().size_of(leaving), bytes_as(before), bytes_as(c.after));
  } else if (is.is == state::partial) {
    c.after.set(axis, {to});
    write({to});
    c.sent = bytes_of(device_action::sum, size, bytes_as(before), bytes_as(before));
    c.sent_back = to == state::replica ? c.sent : 0;
    return c;
  }
  if (to == state::replica && (is.is == state::shard || is.is == state::invariant)) {
    c.after.set(axis, {state::replica});
    write({state::replica});
    c.sent_back += bytes_of(device_action::sum, size, bytes_as(c.after), bytes_as(c.after));
  } else if (is.is != state::shard) {
    c.words = {};
  }
  return c;
}

}  // namespace gspmd::detail
