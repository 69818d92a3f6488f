// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/element_bits.hpp"
#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/sources.hpp"

namespace gspmd::detail {

/// Adds a shift. Element i of the result along `dim` is element i + offset of the operand. Outside of the operand, the
/// element follows from `beyond`; it is `number` if `beyond` is continuation::none.
constexpr int add_shift(graph& g, int operand, int dim, std::int64_t offset, location at,
                        continuation beyond = continuation::none, written_number number = 0);

/// The attributes of a shift. The offset is the node's `integer`. A floating number beyond the ends is the node's
/// `real`.
struct shift_way {
  int dim = 0;
  continuation beyond = continuation::none;
  std::int64_t integer = 0;  // the number beyond the ends, of other types

  constexpr void keep(node& n) const { add_attributes(n, dim, beyond, integer); }
  static constexpr shift_way of(const node& n) {
    return {attribute_dim(n, 0), static_cast<continuation>(n.attributes[1]), n.attributes[2]};
  }
};

/// The operand with its elements moved along one dim, with a boundary condition at the ends.
///
/// **Shapes.** x -> the shape of x. **Splits.** Every dim may be split. A split of the shifted dim is kept: devices
/// exchange the elements that cross the boundaries of shards (GSPMD 4.3).
struct shift_op : plain_operator, same_dims, reads_shards, without_arithmetic, outside_of_loops, dims_by_number {
  static constexpr const char* name = "shift";
  static constexpr leading_dim leading{.count = 1};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};

  /// The number beyond the ends would be added once on each device, but must be added once in the sum. So a partial
  /// operand stays partial only if the number is zero, or if the monoid is neither add nor multiply.
  static constexpr operator_class meets(const node& n, monoid kind) {
    const bool is_zero = shift_way::of(n).beyond != continuation::none || (n.real == 0 && shift_way::of(n).integer == 0);
    return {is_zero || (kind != monoid::add && kind != monoid::multiply) ? partial_class::all : partial_class::affine};
  }
  static constexpr bool composes = false;
  static constexpr int movements(const node&) { return 1; }
  static constexpr index_map map(const graph&, const node& n, int) {
    const shift_way way = shift_way::of(n);
    index_map map;
    map.dims.push_back(dim_map::affine(way.dim, 1, n.integer, 1));
    map.dims[0].beyond = way.beyond;
    map.fill = bits_of(n.type, n.real, way.integer);
    return map;
  }
  /// The transposed shift. Each element receives the gradient of its copy inside. An element near an end also receives
  /// the gradients of its copies beyond the end.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const auto [dim, beyond, integer] = shift_way::of(n);
    const int dy = b.dy().id();
    const auto extent = n.shape[dim], offset = n.integer;
    graph& g = b.program();
    const bool is_round = beyond == continuation::round;
    int sum = add_shift(g, dy, dim, -offset, n.at, is_round ? continuation::round : continuation::none);
    if (!is_round && beyond != continuation::none && offset != 0) {
      const int index = add_iota(g, dtype::s64, n.shape, dim, n.at);
      const int zero = add_constant(g, n.type, n.shape, 0, 0, n.at);
      const auto outside = offset < 0 ? index_range{0, -offset} : index_range{extent - offset, extent};
      for (auto i = outside.begin; i < outside.end; ++i) {
        const auto from = element_at(beyond, extent, i + offset);
        const int is_it =
            add_elementwise(g, code_of<compare_eq_op>, {index, add_constant(g, dtype::s64, n.shape, 0, from, n.at)}, n.at);
        const int part = add_elementwise(g, code_of<where_op>, {is_it, add_shift(g, dy, dim, i - from, n.at), zero}, n.at);
        sum = add_elementwise(g, code_of<add_op>, {sum, part}, n.at);
      }
    }
    b.send(0, sum);
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    l.move(op);
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    if (step == nullptr) return;
    const auto& map = map_of(plan, *step);
    const auto& along = map.dims[0];
    t += "(dim " + std::to_string(along.dim);
    if (map.has_margins()) t += ", margins " + std::to_string(map.low) + " and " + std::to_string(map.high) + ')';
    else t += (along.from_first > 0 ? ", +" : ", ") + std::to_string(along.from_first) + ')';
  }
};

constexpr int add_shift(graph& g, int operand, int dim, std::int64_t offset, location at, continuation beyond,
                        written_number number) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  if (dim < 0 || dim >= x.shape.count)
    return g.fail(at, "shift", mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(x.shape) << "; dims count from 0");
  if (!number.fills(x.type)) return g.fail(at, "shift", mistake::number, number_problem(number, x.type));
  const auto size = x.shape[dim];
  if (beyond != continuation::none && size <= 1) {  // all indices beyond read the same element
    beyond = continuation::none;
    offset = 0;
  }
  if (beyond == continuation::none || beyond == continuation::edge) {
    // larger offsets have the same result
    offset = offset < -size ? -size : offset > size ? size : offset;
  } else {
    const auto period = beyond == continuation::reflect ? 2 * size - 2 : beyond == continuation::symmetric ? 2 * size : size;
    offset -= floor_div(offset, period) * period;
    if (2 * offset > period) offset -= period;
  }
  node n;
  n.op = code_of<shift_op>;
  n.type = x.type;
  n.shape = x.shape;
  n.at = at;
  n.operands.push_back(operand);
  shift_way{dim, beyond, number.integer}.keep(n);
  n.integer = offset;
  n.real = number.real;
  return g.add(n);
}

}  // namespace gspmd::detail
