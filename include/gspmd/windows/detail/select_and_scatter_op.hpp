// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/windows/detail/windowed.hpp"

namespace gspmd::detail {

/// Adds the gradient of a maximum or minimum over windows of `operand`. The element of `gradient` for a window is added
/// to the first element of the window that is the maximum, or minimum. The windows must not be reversed, as in
/// reduce_window.
constexpr int add_select_and_scatter(graph& g, int operand, int gradient,
                                     const inline_vec<windowed_dim, max_mapped_dims>& windows, monoid kind, location at);

/// The gradient of a maximum or minimum over windows.
///
/// **Shapes.** operand [n], one gradient for each window -> [n]. **Splits.** Every dim may be split. Each device
/// computes the gradient of its own elements. It reads all windows that contain these elements, as tiles of the operand
/// and of the gradient.
struct select_and_scatter_op : windowed_operator {
  static constexpr const char* name = "select_and_scatter";

  /// Windows begin at most `room` before the first element of a part, and end at most `room` after its last element.
  static constexpr std::int64_t room_of(const window_dim& w) { return w.span() - 1; }
  static constexpr window_dim reads_of_operand(const window_dim& w) {
    return {2 * room_of(w) + 1, w.base, 1, -room_of(w), w.base};
  }
  static constexpr window_dim reads_of_gradient(const window_dim& w) {
    return {room_of(w) + 1, w.base, 1, -room_of(w) - w.first(), w.stride};
  }

  /// Linear in the gradients of the windows: the zeros of all devices add up to zero.
  static constexpr operator_class meets(const node&, monoid kind) {
    return {kind == monoid::add ? partial_class::all : partial_class::none, 1};
  }
  static constexpr int tiles(const node&) { return 2; }
  static constexpr index_map tile(const graph& g, const node& n, int k) {
    index_map map;
    if (k == 0) map.fill = identity_bits(n.reduced_by, n.type);
    for (const auto& along : windows_of(n)) {
      const window_dim& w = along.window;
      map.dims.push_back(dim_map::tile_of(along.dim, k == 0 ? reads_of_operand(w) : reads_of_gradient(w), along.outputs));
      if (k == 0 && w.span() > 1) {
        auto& tile = map.dims[map.dims.count - 1].tile;
        tile.begin = room_of(w) + w.first();
        tile.every = w.stride;
        tile.width = w.span();
        tile.windows = operand_of(g, n, 1).shape[along.dim];
      }
    }
    return map;
  }
  /// 1 for each element of each window.
  static constexpr std::int64_t flops(const graph& g, const mesh_shape&, const local_program& p, const instruction& op) {
    auto total = saturating_elements(p.value(op.operands[1]).local);
    for (const auto& along : windows_of(g.nodes[static_cast<std::size_t>(op.node)]))
      total = saturating_multiply(total, along.window.size);
    return total;
  }
  static constexpr void gradient(auto& b, const node& n) {
    b.program().fail(
        n.at, name_of(n.op), mistake::no_derivative,
        "is the gradient of a maximum or minimum over windows, and has no gradient of its own; take that of a smooth "
        "function of the windows");
  }
  /// Returns true if no window reaches into another part. Then no tile of the operand and no tile of the gradient with
  /// zeros between windows is filled, which took two thirds of the time. Not for the last dim, whose windows are
  /// vectors over all indices where a window can start.
  static constexpr bool reads_own_windows(const lowering& l, const instruction& op) {
    const auto windows = windows_of(l.node_of(op));
    bool all = !windows.empty();
    for (const auto& along : windows) {
      all = all && along.window.base == 1 && along.window.dilation > 0 && along.dim < l.value(op.result).local.count - 1;
      for (const int v : {op.operands[0], op.operands[1], op.result}) all = all && l.value(v).layout.axes_of(along.dim) == 0;
    }
    return all;
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    window_selection s;
    s.is_own = reads_own_windows(l, op);
    lowering::placed_tile in{op.operands[0], {}}, by{op.operands[1], {}};
    if (!s.is_own) in = l.tile(op, 0), by = l.tile(op, 1);
    s.in = l.value(in.value).local;
    s.by = l.value(by.value).local;
    s.out = l.value(op.result).local;
    s.is_minimum = n.reduced_by == monoid::min;
    for (const auto& along : windows_of(n)) {
      const window_dim& w = along.window;
      if (s.is_own) s.windows.push_back({static_cast<std::int8_t>(along.dim), w.size, w.dilation, w.stride, -w.first(), 0, 0});
      else
        s.windows.push_back({static_cast<std::int8_t>(along.dim), w.size, w.dilation, reads_of_operand(w).in_tile().stride,
                             room_of(w), in.at[along.dim], by.at[along.dim]});
    }
    const int from = l.widened(op, in.value), added = l.widened(op, by.value), to = l.wide_result(op.result);
    note_padded(l, op, add_step<kernels::select_and_scatter>(l, op, s, {from, added}, {to}));
    l.narrowed(op, to, op.result);
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

constexpr int add_select_and_scatter(graph& g, int operand, int gradient,
                                     const inline_vec<windowed_dim, max_mapped_dims>& windows, monoid kind, location at) {
  if (operand < 0 || gradient < 0) return -1;
  node n;
  n.op = code_of<select_and_scatter_op>;
  n.reduced_by = kind;
  n.at = at;
  n.type = g.nodes[static_cast<std::size_t>(operand)].type;
  n.shape = g.nodes[static_cast<std::size_t>(operand)].shape;
  n.operands.push_back(operand);
  n.operands.push_back(gradient);
  for (const auto& along : windows) keep_window(n, along.dim, along.window);
  return g.add(n);
}

}  // namespace gspmd::detail
