// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"
#include "gspmd/windows/detail/select_and_scatter_op.hpp"
#include "gspmd/windows/detail/windowed.hpp"

namespace gspmd::detail {

/// Adds the reduction of windows along these dims. Each dim occurs once. If an operator has too few entries for
/// the dims, several operators are added, the last dims first. So, among equal maxima, the first one in row-major order
/// gets the gradient, as with one operator. No window is reversed, because the order within a window does not matter.
constexpr int add_reduce_window(graph& g, int operand, const vec<windowed_dim>& windows, monoid kind, location at);

/// The numbers of a window as users write them, one for each dim.
struct window_lists {
  span<const std::int64_t> size, stride, low, high, base_dilation, window_dilation;
};

/// Returns the windows that the lists describe. Records the mistake if the lists are not valid.
constexpr vec<windowed_dim> windows_over(graph& g, std::string_view op, const extents& shape, const window_lists& lists,
                                         location at) {
  constexpr auto most = std::int64_t{1} << 31;
  vec<windowed_dim> windows;
  for (const auto& list : {lists.size, lists.stride, lists.low, lists.high, lists.base_dilation, lists.window_dilation})
    if (list.size() != static_cast<std::size_t>(shape.count)) {
      g.fail(at, op, mistake::rank,
             text("names ") << static_cast<std::int64_t>(list.size()) << " numbers for the dims of " << shape_text(shape)
                            << "; write a size, and each option, for each dim, 1 for a dim without a window");
      return {};
    }
  for (int d = 0; d < shape.count; ++d) {
    const auto i = static_cast<std::size_t>(d);
    const struct {
      const char* name;
      std::int64_t number;
    } positive[] = {{"size", lists.size[i]},
                    {"stride", lists.stride[i]},
                    {"base dilation", lists.base_dilation[i]},
                    {"window dilation", lists.window_dilation[i]}};
    for (const auto& p : positive)
      if (p.number < 1 || p.number > most) {
        g.fail(at, op, mistake::window,
               text("has a ") << p.name << " of " << p.number << " along dim " << d << " of " << shape_text(shape)
                              << "; it is at least 1" << (p.number > most ? ", and at most 2^31" : ""));
        return {};
      }
    const padded_window w{lists.size[i],          lists.stride[i],          lists.low[i], lists.high[i],
                          lists.base_dilation[i], lists.window_dilation[i], false};
    const auto spread = shape[d] == 0 ? 0 : saturating_add(1, saturating_multiply(shape[d] - 1, w.base_dilation));
    if (w.low > most || w.low < -most || w.high > most || w.high < -most || spread > most_bytes) {
      g.fail(at, op, mistake::size,
             text("lays windows over more of dim ") << d << " of " << shape_text(shape) << " than can be counted");
      return {};
    }
    const auto padded = w.padded(shape[d]), span = w.window().span();
    if (padded < span && (shape[d] != 0 || padded != 0)) {
      g.fail(at, op, mistake::window,
             text("has a window that takes ")
                 << span << " along dim " << d << " of " << shape_text(shape) << ", and with " << w.low << " before and "
                 << w.high << " after the dim, its extent is " << padded << "; make it smaller, or add padding");
      return {};
    }
    windows.push_back({d, w.window(), w.outputs(shape[d])});
  }
  return windows;
}

/// Checks the user's arguments, and adds the reduction.
constexpr int add_reduce_window(graph& g, int operand, const window_lists& lists, monoid kind, location at);

/// A reduction of each window of the operand by a monoid.
///
/// **Shapes.** [n] -> one element for each position of the window. **Splits.** As in windowed_operator: every dim may
/// be split, and devices exchange halos along windowed dims.
struct reduce_window_op : windowed_operator {
  static constexpr const char* name = "reduce_window";

  /// The combination of the devices' identities is the identity.
  static constexpr operator_class meets(const node& n, monoid kind) {
    return {n.reduced_by == kind ? partial_class::all : partial_class::none};
  }
  static constexpr int tiles(const node&) { return 1; }
  static constexpr index_map tile(const graph&, const node& n, int) {
    index_map map;
    map.fill = identity_bits(n.reduced_by, n.type);
    for (const auto& along : windows_of(n)) map.dims.push_back(dim_map::tile_of(along.dim, along.window, along.outputs));
    return map;
  }
  /// 1 for each element of each window.
  static constexpr std::int64_t flops(const graph& g, const mesh_shape&, const local_program& p, const instruction& op) {
    auto total = saturating_elements(p.value(op.result).local);
    for (const auto& along : windows_of(g.nodes[static_cast<std::size_t>(op.node)]))
      total = saturating_multiply(total, along.window.size);
    return total;
  }
  /// The gradient of a sum is a sum of windows: the outputs whose windows contain an element are a window of dy. If the
  /// reduction is a maximum, the first element that equals the maximum of its window receives the gradient.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    const auto back = [&](auto t) {
      vec<windowed_dim> windows;
      const extents shape = operand_of(g, n, 0).shape;
      for (const auto& along : windows_of(n)) windows.push_back({along.dim, along.window.transposed(), shape[along.dim]});
      return b.as_term(add_reduce_window(g, t.id(), windows, monoid::add, n.at));
    };
    if (n.reduced_by == monoid::add) b.send(0, back(b.dy()));
    else if (n.reduced_by == monoid::multiply) b.send(0, back(b.dy() * b.y()) / b.in(0));
    else if (n.reduced_by == monoid::max || n.reduced_by == monoid::min)
      b.send(0, add_select_and_scatter(g, b.in(0).id(), b.dy().id(), windows_of(n), n.reduced_by, n.at));
  }
  /// The kernel computes only existing outputs: the tile has no elements for other outputs.
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    const auto tile = l.tile(op, 0);
    window_reduction w;
    w.in = l.value(tile.value).local;
    w.out = l.value(op.result).local;
    w.reduced_by = n.reduced_by;
    for (const auto& along : windows_of(n)) {
      window_dim inside = along.window.in_tile();
      inside.offset += tile.at[along.dim];
      w.windows.push_back({static_cast<std::int8_t>(along.dim), inside});
    }
    const int from = l.widened(op, tile.value), to = l.wide_result(op.result);
    note_padded(l, op, add_step<kernels::reduce_window>(l, op, w, {from}, {to}));
    l.narrowed(op, to, op.result, has_ends(w.reduced_by));
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    const auto spec = description_if<kernels::reduce_window>(plan, step);
    if (!spec) return;
    t += '(' + std::string(name_of(spec->reduced_by));
    for (const auto& along : spec->windows)
      t += ", dim " + std::to_string(along.dim) + " by " + std::to_string(along.window.size);
    t += ')';
  }
};

constexpr int add_reduce_window(graph& g, int operand, const window_lists& lists, monoid kind, location at) {
  if (operand < 0) return -1;
  const char* const op = name_of(code_of<reduce_window_op>);
  const extents shape = g.nodes[static_cast<std::size_t>(operand)].shape;
  const dtype type = g.nodes[static_cast<std::size_t>(operand)].type;
  if (!is_defined(kind, type))
    return g.fail(at, op, mistake::type, text("kind ") << name_of(kind) << ' ' << not_defined_for(type));
  if (is_complex(type) || is_own(type)) return g.fail(at, op, mistake::type, not_defined_with_windows(type));
  const auto windows = windows_over(g, op, shape, lists, at);
  return g.failed() ? -1 : add_reduce_window(g, operand, windows, kind, at);
}

constexpr int add_reduce_window(graph& g, int operand, const vec<windowed_dim>& windows, monoid kind, location at) {
  if (operand < 0) return -1;
  node n;
  n.op = code_of<reduce_window_op>;
  n.reduced_by = kind;
  n.at = at;
  n.type = g.nodes[static_cast<std::size_t>(operand)].type;
  n.shape = g.nodes[static_cast<std::size_t>(operand)].shape;
  vec<windowed_dim> left;
  for (auto along : windows) {
    window_dim& w = along.window;
    if (w.dilation < 0) w = {w.size, w.stride, -w.dilation, w.first(), w.base};
    if (w.size == 1) w.dilation = 1;
    if (w != window_dim{} || along.outputs != n.shape[along.dim]) left.push_back(along);
  }
  if (left.empty()) return add_reshape(g, operand, n.shape, at);
  for (auto end = left.size(); end > 0 && operand >= 0;) {
    const auto begin = end > max_mapped_dims ? end - max_mapped_dims : 0;
    node padded = n;  // the operand with padding, over which the windows move
    n.attributes.clear();
    for (auto i = begin; i < end; ++i) {
      n.shape[left[i].dim] = left[i].outputs;
      padded.shape[left[i].dim] = left[i].window.positions({0, left[i].outputs}).size();
      keep_window(n, left[i].dim, left[i].window);
    }
    n.operands.clear();
    n.operands.push_back(operand);
    operand = g.is_countable(padded, name_of(n.op)) ? g.add_sized(n) : -1;
    end = begin;
  }
  return operand;
}

}  // namespace gspmd::detail
