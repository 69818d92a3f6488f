// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/detail/ops/transpose.hpp"

namespace gspmd::detail {

/// Adds a broadcast. Dim `d` of the operand becomes dim `dims[d]` of the result, and an extent of 1 is stretched. The
/// dims of the operator are in increasing order. If `dims` is not, the operand is transposed first.
constexpr int add_broadcast(graph& g, int operand, const extents& shape, const inline_vec<std::int8_t, max_rank>& dims,
                            location at);

constexpr int add_reduce(graph& g, int operand, dim_mask dims, monoid kind, location at);

/// Adds a broadcast of the value `reduced` to the shape of the operand of the reduction `n`.
constexpr int add_spread(graph& g, int reduced, const node& n) {
  const extents shape = operand_of(g, n, 0).shape;
  inline_vec<std::int8_t, max_rank> kept;
  for (int d = 0, next = 0; d < shape.count; ++d) {
    const bool is_reduced = next < n.attributes.count && attribute_dim(n, next) == d;
    if (is_reduced) ++next;
    else kept.push_back(static_cast<std::int8_t>(d));
  }
  return add_broadcast(g, reduced, shape, kept, n.at);
}

/// Repeats elements along new dims and along dims of extent 1. A loop reads the operand through strides of 0.
///
/// **Shapes.** [b] -> [a, b], by the attributes: dim d of the operand is dim attribute d of the result. **Splits.**
/// Every dim may be split, and the result keeps the splits of the operand. Completion propagates backward first, which
/// avoids communication on the larger shape.
struct broadcast_op : linear_in_all, without_exchange, without_movements, reads_shards, without_arithmetic, dims_by_number {
  static constexpr const char* name = "broadcast_in_dim";
  static constexpr leading_dim leading{.is = leading_dim::way::in_front};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::strides;
  static constexpr completion_rounds completes{.forward = 3, .backward = 2};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  static constexpr replication_words replication = ordinary_replication;

  /// Rule `b->ab`: each dim of the result is a parallel factor. The operand has the factors of the dims that are not
  /// stretched.
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const extents& in = g.nodes[static_cast<std::size_t>(n.operands[0])].shape;
    tensor_map operand;
    tensor_map result;
    for (int d = 0; d < n.shape.count; ++d) {
      result.begin_dim();
      result.add_factor(rule.add_factor(n.shape[d]));
    }
    for (int d = 0; d < in.count; ++d) {
      operand.begin_dim();
      if (in[d] == n.shape[attribute_dim(n, d)]) operand.add_factor(attribute_dim(n, d));
    }
    rule.maps.push_back(operand);
    rule.maps.push_back(result);
  }
  static constexpr int reads(const node& n) { return n.operands.count; }
  /// The result is larger than the operand, so the planner reduces a partial operand before the broadcast
  /// (is_made_again in passes/choose/partial_rule.hpp).
  static constexpr bool is_made_again(const node&) { return true; }
  static constexpr bool may_go_round_ring(const node&) { return false; }
  static constexpr scalar_op in_loop(const graph&, const node&) { return {}; }
  static constexpr dim_places lies_along(const graph& g, const node& n) {
    dim_places along;
    for (int d = 0; d < n.attributes.count; ++d)
      along.push_back(operand_of(g, n, 0).shape[d] != n.shape[attribute_dim(n, d)]
                          ? std::int8_t{-1}
                          : static_cast<std::int8_t>(attribute_dim(n, d)));
    return along;
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const extents shape = operand_of(b.program(), n, 0).shape;
    dim_mask summed = 0;  // the reshape below drops dims of extent 1 without work
    for (int d = 0; d < n.shape.count; ++d)
      if (n.shape[d] != 1) summed |= dim_bit(d);
    for (int d = 0; d < n.attributes.count; ++d)
      if (shape[d] == n.shape[attribute_dim(n, d)]) summed &= ~dim_bit(attribute_dim(n, d));
    int id = b.dy().id();
    if (summed != 0) id = add_reduce(b.program(), id, summed, monoid::add, n.at);
    if (id >= 0 && !(b.at(id).shape == shape)) id = add_reshape(b.program(), id, shape, n.at);
    b.send(0, id);
  }
  static constexpr void lower(lowering&, const instruction&) {}
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

constexpr int add_broadcast(graph& g, int operand, const extents& shape, const inline_vec<std::int8_t, max_rank>& dims,
                            location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  if (dims.count != x.shape.count)
    return g.fail(at, "broadcast_in_dim", mistake::rank,
                  text("names ") << dims.count << " dims for an operand " << shape_text(x.shape)
                                 << "; name one dim of the result for each dim of the operand");
  node n;
  n.op = code_of<broadcast_op>;
  n.type = x.type;
  n.shape = shape;
  n.at = at;
  n.operands.push_back(operand);
  dim_mask named = 0;
  bool is_in_order = true;
  for (int d = 0; d < dims.count; ++d) {
    if (dims[d] < 0 || dims[d] >= shape.count)
      return g.fail(at, "broadcast_in_dim", mistake::dim,
                    text("dim ") << dims[d] << " is not a dim of the result " << shape_text(shape) << "; dims count from 0");
    if ((named & dim_bit(dims[d])) != 0)
      return g.fail(at, "broadcast_in_dim", mistake::dim,
                    text("names dim ") << dims[d] << " of the result twice; it is one dim of the operand");
    named |= dim_bit(dims[d]);
    if (x.shape[d] != 1 && x.shape[d] != shape[dims[d]])
      return g.fail(at, "broadcast_in_dim", mistake::extent,
                    text("dim ") << d << " of the operand " << shape_text(x.shape) << " does not fit dim " << dims[d]
                                 << " of the result " << shape_text(shape) << "; it must be equal or 1");
    is_in_order = is_in_order && (d == 0 || dims[d - 1] < dims[d]);
    n.attributes.push_back(dims[d]);
  }
  if (!is_in_order) {
    inline_vec<std::int8_t, max_rank> order;  // the dims of the operand, in the order of the result
    n.attributes.clear();
    for (int to = 0; to < shape.count; ++to)
      for (int d = 0; d < dims.count; ++d)
        if (dims[d] == to) {
          order.push_back(static_cast<std::int8_t>(d));
          n.attributes.push_back(to);
        }
    n.operands[0] = add_transpose(g, operand, order, at);
  }
  return g.add_sized(n);
}

}  // namespace gspmd::detail

#include "gspmd/detail/ops/reduce.hpp"  // each operator is the gradient of the other
