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
struct shift_op {
  static constexpr bool owns(opcode op) { return op == code_of<shift_op>; }
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = true;
  static constexpr bool keeps_slices = true;
  static constexpr bool may_cut_axes = false;
  static constexpr replication_words replication = ordinary_replication;

  static constexpr void rule(const graph&, const node& n, op_rule& r) { uniform_rule(n.shape, r); }
  /// The zeros of all devices are a zero in every monoid.
  static constexpr partial_rule partial(const node&, int, monoid) { return partial_rule::any; }
  static constexpr int reads(const node& n) { return n.operands.count; }
  static constexpr bool is_made_again(const node&) { return false; }
  static constexpr bool may_go_round_ring(const node&) { return false; }
  static constexpr int movements(const node&) { return 1; }
  static constexpr index_map map(const graph&, const node& n, int) {
    index_map map;
    map.dims.push_back(dim_map::affine(attribute_dim(n, 0), 1, n.integer, 1));
    return map;
  }
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program&, const local_op&) { return 0; }
  static constexpr scalar_op in_loop(const graph&, const node&) { return {}; }
  static constexpr dim_places lies_along(const graph&, const node&) { return {}; }
  static constexpr void name_dim(text&, const graph&, const node&, int, int) {}
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    b.send(0, add_shift(b.program(), b.dy().id(), attribute_dim(n, 0), -n.integer, n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const local_op& op) {
    l.move(op);
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    if (step == nullptr) return;
    const auto& along = map_of(plan, *step).dims[0];
    t += "(dim " + std::to_string(along.dim) + (along.from_first > 0 ? ", +" : ", ") + std::to_string(along.from_first) + ')';
  }
};

}  // namespace gspmd::detail
