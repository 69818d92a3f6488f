// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/einsum/convolution_steps.hpp"
#include "gspmd/detail/ops/einsum/windowed_einsum.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/sources.hpp"

namespace gspmd::detail {

/// An einsum whose first operand is read through windows. Spatial dims, batch dims, feature dims and groups are all
/// letters.
///
/// **Shapes.** As the equation says: `b(2x+w)i,wio->bxo`. **Splits.** As in an einsum. A windowed dim has the splits of
/// its outer letter and is read as tiles, so the devices exchange halos. The inner letter is gathered. A split summed
/// letter leaves the result partial.
struct convolution_op : plain_operator, without_movements, outside_of_loops {
  static constexpr const char* name = "convolution";
  static constexpr leading_dim leading{.is = leading_dim::way::letters};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;

  /// The rule of an einsum. A windowed dim has the factor of its outer letter, even if the extents differ. The inner
  /// letter is whole.
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const auto e = windowed_einsum_of(g, n);
    const auto extent = global_extents(g, n, e);
    rule.reduced_by = monoid::add;
    inline_vec<std::int8_t, 2 * max_rank> letters;  // by factor
    for (int k = 0; k < 3; ++k) {
      tensor_map map;
      for (int letter : e.letters[k]) {
        if (is_window(letter)) letter = e.windows[window_of(letter)].outer;
        int f = 0;
        while (f < letters.count && letters[f] != letter) ++f;
        if (f == letters.count) {
          letters.push_back(static_cast<std::int8_t>(letter));
          const auto* const w = window_with(e, letter);
          const bool is_whole = w != nullptr && (w->inner == letter || place_of(e.letters[0], letter) >= 0);
          rule.add_factor(extent[letter], is_whole                              ? factor_kind::whole
                                          : place_of(e.letters[2], letter) >= 0 ? factor_kind::parallel
                                                                                : factor_kind::reduction);
        }
        map.begin_dim();
        map.add_factor(f);
      }
      rule.maps.push_back(map);
    }
  }
  static constexpr int tiles(const node&) { return 1; }
  static constexpr index_map tile(const graph& g, const node& n, int) {
    const auto e = windowed_einsum_of(g, n);
    const auto extent = global_extents(g, n, e);
    index_map map;
    for (int d = 0; d < e.letters[0].count; ++d) {
      if (!is_window(e.letters[0][d])) continue;
      const auto& w = e.windows[window_of(e.letters[0][d])];
      map.dims.push_back(dim_map::tile_of(d, w.along, extent[w.outer]));
    }
    return map;
  }
  static constexpr operator_class meets(const node&, monoid kind) {
    return {kind == monoid::add ? partial_class::one : partial_class::none};
  }

  /// 2 for each combination of local indices, including zeros outside of the operand.
  static constexpr std::int64_t flops(const graph& g, const mesh_shape&, const local_program& p, const instruction& op) {
    const node& n = g.nodes[static_cast<std::size_t>(op.node)];
    const auto e = windowed_einsum_of(g, n);
    const auto extent = local_extents_of(p, e, op);
    std::int64_t total = 2;
    inline_vec<std::int8_t, 3 * max_rank> listed;
    for (const auto& list : e.letters)
      for (const auto letter : list) {
        if (is_window(letter) || place_of(listed, letter) >= 0) continue;
        listed.push_back(letter);
        total = saturating_multiply(total, extent[letter]);
      }
    return total;
  }

  static constexpr void name_dim(text& t, const graph& g, const node& n, int k, int dim) {
    const auto e = windowed_einsum_of(g, n);
    const int letter = e.letters[k][dim];
    if (!is_window(letter)) {
      t << " (dim `" << static_cast<char>(letter) << "`)";
      return;
    }
    const auto& w = e.windows[window_of(letter)];
    t << " (dim `("
      << window_text(static_cast<char>(w.outer), w.along.stride, static_cast<char>(w.inner), w.along.dilation, w.along.offset)
      << ")`)";
  }

  /// Both gradients are einsums with windows (see windowed_einsum.hpp).
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    const auto e = windowed_einsum_of(g, n);
    const auto extent = global_extents(g, n, e);
    const extents shapes[] = {operand_of(g, n, 0).shape, operand_of(g, n, 1).shape};
    auto by_other = e;
    by_other.letters[1] = e.letters[2];
    by_other.letters[2] = e.letters[1];
    b.send(1, add_windowed_einsum(g, by_other, n.operands[0], b.dy().id(), shapes[1], n.at));

    auto back = gradient_by_windows(e, extent, shapes[0], e.letters[2], e.letters[1]);
    int moved = b.dy().id(), other = n.operands[1];
    if (!back.is_possible) {
      back = gradient_by_windows(e, extent, shapes[0], e.letters[1], e.letters[2]);
      moved = n.operands[1];
      other = b.dy().id();
    }
    if (!back.is_possible) return add_unfolded_gradient(b, n, e, shapes[0]);
    other = add_inner_letters(g, back.e, moved, other, n.at);
    b.send(0, add_windowed_einsum(g, back.e, moved, other, shapes[0], n.at));
  }

  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    add_windowed_contraction(l, op);
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}

 private:
  /// Appends to the other operand the inner letters of windows that only operand 0 has.
  static constexpr int add_inner_letters(graph& g, windowed_einsum& e, int first, int other, location at) {
    extents shape = g.nodes[static_cast<std::size_t>(other)].shape;
    inline_vec<std::int8_t, max_rank> kept;
    for (int d = 0; d < shape.count; ++d) kept.push_back(static_cast<std::int8_t>(d));
    for (const auto& w : e.windows)
      for (const auto letter : {w.outer, w.inner}) {
        const int d = place_of(e.letters[0], letter);
        if (d < 0 || place_of(e.letters[1], letter) >= 0 || place_of(e.letters[2], letter) >= 0) continue;
        e.letters[1].push_back(letter);
        shape.push_back(g.nodes[static_cast<std::size_t>(first)].shape[d]);
      }
    return kept.count == shape.count ? other : add_broadcast(g, other, shape, kept, at);
  }

  /// Adds the gradient of operand 0 if both letters of a window are also dims of dY or of the other operand. Computes
  /// all products first, and then sums them along the windows.
  template <class Builder>
  static constexpr void add_unfolded_gradient(Builder& b, const node& n, const windowed_einsum& e, const extents& shape) {
    graph& g = b.program();
    inline_vec<std::int8_t, max_rank> all;
    for (const auto letter : e.letters[0])
      if (!is_window(letter)) all.push_back(letter);
    for (const auto& w : e.windows)
      for (const auto letter : {w.outer, w.inner})
        if (place_of(all, letter) < 0) all.push_back(letter);
    einsum_equation products;
    for (const auto* from : {&e.letters[2], &e.letters[1]}) {
      inline_vec<char, max_rank> letters;
      for (const auto letter : *from) letters.push_back(static_cast<char>(letter));
      products.operands.push_back(letters);
    }
    for (const auto letter : all) products.result.push_back(static_cast<char>(letter));
    const int all_products = add_einsum(g, products, {b.dy().id(), n.operands[1]}, n.at);
    auto back = gradient_by_windows(e, global_extents(g, n, e), shape, all, {});
    if (all_products < 0 || !back.is_possible) return;
    const int one = add_number(g, 1, n.type, extents{}, "grad", n.at);
    const int other = add_inner_letters(g, back.e, all_products, one, n.at);
    b.send(0, add_windowed_einsum(g, back.e, all_products, other, shape, n.at));
  }
};

constexpr int add_windowed_einsum(graph& g, windowed_einsum e, int lhs, int rhs, const extents& shape, location at) {
  if (lhs < 0 || rhs < 0) return -1;
  node n;
  n.op = code_of<convolution_op>;
  n.at = at;
  n.type = g.nodes[static_cast<std::size_t>(lhs)].type;
  n.shape = shape;
  n.operands.push_back(add_without_lone_letters(g, e, 0, lhs, at));
  n.operands.push_back(add_without_lone_letters(g, e, 1, rhs, at));
  if (n.operands[0] < 0 || n.operands[1] < 0) return -1;
  const int room = e.letters[0].count + e.letters[1].count + e.letters[2].count + 7 * e.windows.count;
  if (room > 3 * max_rank)
    return g.fail(at, "convolution", mistake::rank,
                  text("has ") << e.letters[0].count + e.letters[1].count + e.letters[2].count << " dims and " << e.windows.count
                               << " windows, which is more than an operator keeps");
  for (const auto& list : e.letters)
    for (const auto l : list) n.attributes.push_back(l);
  for (const auto& w : e.windows)
    for (const std::int64_t a : {std::int64_t{w.outer}, std::int64_t{w.inner}, w.along.size, w.along.stride, w.along.dilation,
                                 w.along.offset, w.along.base})
      n.attributes.push_back(a);
  return g.add_sized(n);
}

}  // namespace gspmd::detail
