// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/rule.hpp"

namespace gspmd::detail {

constexpr bool is_defined(monoid kind, dtype type) {
  if (kind == monoid::and_ || kind == monoid::or_) return !is_floating(type);
  return kind == monoid::maximum || kind == monoid::minimum || type != dtype::pred;
}

/// Adds a reduction over the dims in `dims`; the others keep their order.
constexpr int add_reduce(graph& g, int operand, dim_mask dims, monoid kind, location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  if (x.shape.count < 64 && (dims >> x.shape.count) != 0)
    return g.fail(at, "reduce", mistake::dim,
                  text("a dim to reduce is not a dim of ") << shape_text(x.shape) << "; dims count from 0");
  if (!is_defined(kind, x.type))
    return g.fail(at, "reduce", mistake::type,
                  text("kind ") << name_of(kind) << " is not defined for " << name_of(x.type) << "; convert the operand");
  node n;
  n.op = opcode::reduce;
  n.type = x.type;
  n.kind = kind;
  n.at = at;
  n.operands.push_back(operand);
  for (int d = 0; d < x.shape.count; ++d) {
    if ((dims & dim_bit(d)) != 0) n.attributes.push_back(static_cast<std::int8_t>(d));
    else n.shape.push_back(x.shape[d]);
  }
  return g.add(n);
}

constexpr dim_mask reduced_dims(const node& n) {
  dim_mask dims = 0;
  for (const auto d : n.attributes) dims |= dim_bit(d);
  return dims;
}

/// `ab->a`: a dim that stays is parallel, a reduced one a reduction of the operator's kind.
constexpr void reduce_rule(const graph& g, const node& n, op_rule& rule) {
  const extents& in = g.nodes[static_cast<std::size_t>(n.operands[0])].shape;
  const dim_mask reduced = reduced_dims(n);
  rule.kind = n.kind;
  tensor_map operand;
  tensor_map result;
  for (int d = 0; d < in.count; ++d) {
    const bool is_reduced = (reduced & dim_bit(d)) != 0;
    const int f = rule.add_factor(in[d], is_reduced ? factor_kind::reduction : factor_kind::parallel);
    operand.begin_dim();
    operand.add_factor(f);
    if (is_reduced) continue;
    result.begin_dim();
    result.add_factor(f);
  }
  rule.maps.push_back(operand);
  rule.maps.push_back(result);
}

}  // namespace gspmd::detail
