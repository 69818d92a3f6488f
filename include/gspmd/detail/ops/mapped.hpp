// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/element_bits.hpp"
#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/support/vec.hpp"

/// The common facts of pad, slice, reverse and roll. The result has the elements of the operand, moved along some dims
/// by an affine map.
namespace gspmd::detail {

constexpr void keep_map(node& n, const dim_map& d) {
  for (const std::int64_t a :
       {std::int64_t{d.dim}, static_cast<std::int64_t>(d.beyond), d.from_first, d.from_step, d.to_first, d.to_step})
    n.attributes.push_back(a);
}

/// Adds a movement. If a map has too few entries for the dims, several operators are added. `value` fills the other
/// elements of the result.
constexpr int add_mapped(graph& g, operator_code op, int operand, const extents& shape, const vec<dim_map>& dims,
                         written_number value, location at) {
  if (dims.empty()) return add_reshape(g, operand, shape, at);
  const extents from = g.nodes[static_cast<std::size_t>(operand)].shape;
  node n = source(op, g.nodes[static_cast<std::size_t>(operand)].type, from, at);
  n.real = value.real;
  n.integer = value.integer;
  for (std::size_t i = 0; i < dims.size() && operand >= 0;) {
    n.attributes.clear();
    for (int count = 0; i < dims.size() && count < max_mapped_dims; ++i, ++count) {
      const dim_map& d = dims[i];
      n.shape[d.dim] = shape[d.dim];
      keep_map(n, d);
    }
    n.operands.clear();
    n.operands.push_back(operand);
    operand = g.add_sized(n);
  }
  return operand;
}

/// Returns the maps of an operator's dims, from its attributes.
constexpr inline_vec<dim_map, max_mapped_dims> maps_of(const node& n) {
  inline_vec<dim_map, max_mapped_dims> maps;
  for (int i = 0; i < n.attributes.count; i += 6) {
    const std::int64_t* const a = n.attributes.items + i;
    maps.push_back({static_cast<std::int8_t>(a[0]), static_cast<continuation>(a[1]), a[2], a[3], a[4], a[5]});
  }
  return maps;
}

/// The facts of movements. A derived struct adds the description, and `inverse`, the operator of the gradient.
///
/// **Shapes.** Operand and result have the same rank; moved dims may have other extents. **Splits.** Every dim may be
/// split and keeps its split. If a moved dim is split, the devices exchange the elements that belong to another part of
/// the result.
template <class Self>
struct mapped_op : plain_operator, reads_shards, without_arithmetic, outside_of_loops, dims_by_number {
  static constexpr leading_dim leading{.step = 6, .count = max_mapped_dims};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = true;
  static constexpr bool keeps_slices = true;
  static constexpr bool composes = true;

  /// Each dim keeps its splits, even if operand and result have different extents.
  static constexpr void rule(const graph& g, const node& n, op_rule& r) {
    extents least = n.shape;
    const extents& from = operand_of(g, n, 0).shape;
    for (int d = 0; d < least.count; ++d) least[d] = from[d] < least[d] ? from[d] : least[d];
    uniform_rule(least, r);
  }
  /// The fill value would be added once on each device, but must be added once in the sum. So a partial operand stays
  /// partial only if the fill value is zero, or if the monoid is neither add nor multiply.
  static constexpr operator_class meets(const node& n, monoid kind) {
    const bool is_zero = n.real == 0 && n.integer == 0;
    return {is_zero || (kind != monoid::add && kind != monoid::multiply) ? partial_class::all : partial_class::affine};
  }
  static constexpr int movements(const node&) { return 1; }
  static constexpr index_map map(const graph&, const node& n, int) {
    index_map map;
    map.dims = maps_of(n);
    map.fill = bits_of(n.type, n.real, n.integer);
    return map;
  }
  /// Each element of the operand receives the gradient of its copy in the result.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    vec<dim_map> back;
    for (const auto& d : maps_of(n)) back.push_back(d.inverse());
    const extents shape = operand_of(b.program(), n, 0).shape;
    b.send(0, add_mapped(b.program(), Self::inverse(), b.dy().id(), shape, back, 0, n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    l.move(op);
  }
  /// Appends `(dim 0` and the text that `add` appends for it, then the other dims in the same way.
  template <class Add>
  static void describe_dims(std::string& t, const plan_view& plan, const plan_step* step, Add add) {
    if (step == nullptr) return;
    const auto& map = map_of(plan, *step);
    for (int i = 0; i < map.dims.count; ++i) {
      const auto& d = map.dims[i];
      t += (i == 0 ? "(dim " : ", dim ") + std::to_string(d.dim);
      add(d, plan.operand(*step, 0).global[d.dim], plan.result(*step).global[d.dim]);
    }
    t += ')';
  }
};

}  // namespace gspmd::detail
