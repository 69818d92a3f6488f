// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/passes/typed/program_typer.hpp"
#include "gspmd/detail/passes/typed/remedies.hpp"

/// Makes several values of the user whole on an axis: the remedy if no single value is a remedy.
namespace gspmd::detail {

/// A value in another type, and the text of the change.
struct written_change {
  int node = 0;
  value_type after;
  text words;
  std::int64_t sent = 0, sent_back = 0;
};

/// Returns the change that makes node `x` whole on an axis of the global view, with or without its other dims. The
/// user calls the node operand `number`. The text is empty if the node is whole already.
///
///   operand 0, [data, _], on data, to invariant     reshard<split<_, _>>(operand 0)
constexpr written_change made_whole(program_typer& t, int number, int x, int axis, state to, bool in_all_dims) {
  const value_type& before = t.type(x);
  const extents& shape = t.at(x).shape;
  written_change c{x, before, text("operand ") << number, 0, 0};
  const auto send = [&](const value_type& from, const value_type& after) {
    const auto bytes = [&](const sharding& is, const sharding& becomes) {
      return reshard_bill::of(t.on_mesh, {shape, is, bytes_of(t.at(x).type)}, becomes, t.local_here).bytes;
    };
    c.sent = saturating_add(c.sent, bytes(from.layout, after.layout));
    c.sent_back = saturating_add(c.sent_back, bytes(dual(after.layout), dual(from.layout)));
  };
  const auto write = [&](const axis_state& is) {
    c.words = reshard_text(t.on_mesh, c.after.layout, shape.count, axis, is) << '(' << c.words << ')';
  };
  const axis_state is = before.on(axis);
  if (is.is == state::shard) {
    axis_mask leaving = 0;  // the axis, and the axes after it in its dim
    for (const auto& use : before.layout.splits)
      if (in_all_dims || use.axis == axis || (leaving != 0 && use.dim == is.dim)) leaving |= axis_bit(use.axis);
    for (int a = 0; a < t.mesh().axis_count(); ++a)
      if ((leaving & axis_bit(a)) != 0) c.after.set(a, {state::invariant});
    write(is);
    send(before, c.after);
  } else if (is.is == state::partial) {
    c.after.set(axis, {to});
    write({to});
    send(before, c.after);
    return c;
  }
  if (to == state::replica && (is.is == state::shard || is.is == state::invariant)) {
    const value_type whole = c.after;
    c.after.set(axis, {state::replica});
    write({state::replica});
    send(whole, c.after);
  } else if (is.is != state::shard) {
    c.words = {};
  }
  return c;
}

}  // namespace gspmd::detail
