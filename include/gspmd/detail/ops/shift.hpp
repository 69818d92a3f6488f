// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ops/operator.hpp"

namespace gspmd::detail {

/// Adds a shift: element i of the result along `dim` is element i + offset of the operand, or zero.
constexpr int add_shift(graph& g, int operand, int dim, std::int64_t offset, location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  if (dim < 0 || dim >= x.shape.count)
    return g.fail(at, "shift", mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(x.shape) << "; dims count from 0");
  const auto size = x.shape[dim];
  node n;
  n.op = code_of<shift_op>;
  n.type = x.type;
  n.shape = x.shape;
  n.at = at;
  n.operands.push_back(operand);
  n.attributes.push_back(dim);
  n.integer = offset < -size ? -size : offset > size ? size : offset;  // all of it is zero from there on
  return g.add(n);
}

/// A split of the shifted dim stays: what lies across the boundaries of shards is exchanged (GSPMD 4.3).
struct shift_op : plain_operator, same_dims, reads_shards, without_arithmetic, outside_of_loops, dims_by_number {
  static constexpr bool owns(opcode op) { return op == code_of<shift_op>; }
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};

  /// The zeros of all devices are a zero in every monoid.
  static constexpr partial_rule partial(const node&, int, monoid) { return partial_rule::any; }
  static constexpr int movements(const node&) { return 1; }
  static constexpr index_map map(const graph&, const node& n, int) {
    index_map map;
    map.dims.push_back(dim_map::affine(attribute_dim(n, 0), 1, n.integer, 1));
    return map;
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    b.send(0, add_shift(b.program(), b.dy().id(), attribute_dim(n, 0), -n.integer, n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    l.move(op);
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    if (step == nullptr) return;
    const auto& along = map_of(plan, *step).dims[0];
    t += "(dim " + std::to_string(along.dim) + (along.from_first > 0 ? ", +" : ", ") + std::to_string(along.from_first) + ')';
  }
};

}  // namespace gspmd::detail
