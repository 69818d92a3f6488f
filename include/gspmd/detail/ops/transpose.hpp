// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"

namespace gspmd::detail {

/// Adds a transpose: dim `d` of the result is dim `permutation[d]` of the operand.
constexpr int add_transpose(graph& g, int operand, const inline_vec<std::int8_t, max_rank>& permutation, location at);

/// The operand with its dims in another order.
///
/// **Shapes.** [a, b] -> [b, a]. **Splits.** Every dim may be split, and keeps its split under its new number. Nothing
/// is sent.
struct transpose_op : plain_operator, without_movements, reads_shards, without_arithmetic, outside_of_loops, dims_by_number {
  static constexpr const char* name = "transpose";
  static constexpr leading_dim leading{.is = leading_dim::way::in_front};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = true;

  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    tensor_map operand;
    tensor_map result;
    for (const auto e : g.nodes[static_cast<std::size_t>(n.operands[0])].shape) {
      operand.begin_dim();
      operand.add_factor(rule.add_factor(e));
    }
    for (int d = 0; d < n.attributes.count; ++d) {
      result.begin_dim();
      result.add_factor(attribute_dim(n, d));
    }
    rule.maps.push_back(operand);
    rule.maps.push_back(result);
  }
  static constexpr operator_class meets(const node&, monoid) { return {partial_class::all}; }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    inline_vec<std::int8_t, max_rank> inverse(n.attributes.count, 0);
    for (int d = 0; d < n.attributes.count; ++d) inverse[attribute_dim(n, d)] = static_cast<std::int8_t>(d);
    b.send(0, add_transpose(b.program(), b.dy().id(), inverse, n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    inline_vec<std::int8_t, max_rank> permutation(n.attributes.count, 0);
    for (int d = 0; d < permutation.count; ++d) permutation[d] = static_cast<std::int8_t>(attribute_dim(n, d));
    if (!l.transposes_on_the_way(op, permutation)) l.permute(op, op.operands[0], op.result, permutation);
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

constexpr bool is_transpose(const node& n) { return n.op == code_of<transpose_op>; }

constexpr int add_transpose(graph& g, int operand, const inline_vec<std::int8_t, max_rank>& permutation, location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  dim_mask named = 0;
  for (const auto d : permutation)
    if (d >= 0 && d < x.shape.count) named |= dim_bit(d);
  if (permutation.count != x.shape.count || named != dim_bit(x.shape.count) - 1)
    return g.fail(at, "transpose", mistake::dim,
                  text("the permutation must name each dim of the operand ") << shape_text(x.shape) << " once");
  node n;
  n.op = code_of<transpose_op>;
  n.type = x.type;
  n.at = at;
  n.operands.push_back(operand);
  for (const auto d : permutation) {
    n.attributes.push_back(d);
    n.shape.push_back(x.shape[d]);
  }
  return g.add(n);
}

}  // namespace gspmd::detail
