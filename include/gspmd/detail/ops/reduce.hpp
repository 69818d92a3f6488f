// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/einsum/sum_of_product.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/support/saturating.hpp"

namespace gspmd::detail {

constexpr bool is_defined(monoid kind, dtype type) {
  if (is_complex(type) || is_own(type)) return kind == monoid::add;
  if (kind == monoid::and_ || kind == monoid::or_) return !is_floating(type);
  return kind == monoid::max || kind == monoid::min || type != dtype::pred;
}

/// Adds a reduction over the dims in `dims`. The other dims keep their order.
constexpr int add_reduce(graph& g, int operand, dim_mask dims, monoid kind, location at);

constexpr dim_mask reduced_dims(const node& n) {
  dim_mask dims = 0;
  for (int k = 0; k < n.attributes.count; ++k) dims |= dim_bit(attribute_dim(n, k));
  return dims;
}

constexpr std::int64_t flops_of_sum(const local_program& p, const instruction& op) {
  const auto& operand = p.value(op.operands[0]).local;
  return operand.count == p.value(op.result).local.count ? 0 : saturating_elements(operand);
}

/// A reduction over dims by a monoid: add, multiply, maximum, minimum, and, or.
///
/// **Shapes.** [a, b] -> [a]. **Splits.** Every dim may be split. A split of a reduced dim leaves the result partial
/// with the monoid.
struct reduce_op : plain_operator, without_movements, reads_shards, outside_of_loops, dims_by_number {
  static constexpr const char* name = "reduce";
  static constexpr leading_dim leading{.count = max_rank};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;

  /// Rule `ab->a`: a kept dim is parallel, and a reduced dim a reduction by the operator's monoid.
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const extents& in = g.nodes[static_cast<std::size_t>(n.operands[0])].shape;
    const dim_mask reduced = reduced_dims(n);
    rule.reduced_by = n.reduced_by;
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
  static constexpr operator_class meets(const node& n, monoid kind) {
    return {n.reduced_by == kind ? partial_class::all : partial_class::none};
  }
  /// 1 for each element of the operand, or 0 if no dim is reduced.
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return flops_of_sum(p, op);
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const auto y = b.y(), dy = b.dy(), x = b.in(0);
    const auto spread = [&](auto t) { return b.as_term(add_spread(b.program(), t.id(), n)); };
    if (n.reduced_by == monoid::add) {
      b.send(0, spread(dy));
    } else if (n.reduced_by == monoid::multiply) {
      b.send(0, spread(dy * y) / x);
    } else if (n.reduced_by == monoid::max || n.reduced_by == monoid::min) {  // equal elements share the gradient evenly
      const auto is_equal = y.of(code_of<compare_eq_op>, x, spread(y));
      const auto hit = b.as_term(add_elementwise(b.program(), code_of<cast_op>, {is_equal.id()}, n.at, n.type));
      const auto hits = b.as_term(add_reduce(b.program(), hit.id(), reduced_dims(n), monoid::add, n.at));
      b.send(0, hit * spread(dy / hits));
    }
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const dim_mask dims = reduced_dims(l.node_of(op));
    if (!add_sum_of_product(l, op, dims)) l.reduce_once(op, op.operands[0], op.result, dims, l.node_of(op).reduced_by);
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    if (step == nullptr) return;
    const auto* const spec = description_by<kernels::reduce>(plan, *step);  // null: see sum_of_product.hpp
    t += '(' + std::string(name_of(spec == nullptr ? monoid::add : spec->reduced_by)) + ')';
  }
};

constexpr int add_reduce(graph& g, int operand, dim_mask dims, monoid kind, location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  if (x.shape.count < 64 && (dims >> x.shape.count) != 0)
    return g.fail(at, "reduce", mistake::dim,
                  text("a dim to reduce is not a dim of ") << shape_text(x.shape) << "; dims count from 0");
  if (!is_defined(kind, x.type))
    return g.fail(at, "reduce", mistake::type, text("kind ") << name_of(kind) << ' ' << not_defined_for(x.type));
  node n;
  n.op = code_of<reduce_op>;
  n.type = x.type;
  n.reduced_by = kind;
  n.at = at;
  n.operands.push_back(operand);
  for (int d = 0; d < x.shape.count; ++d) {
    if ((dims & dim_bit(d)) != 0) n.attributes.push_back(d);
    else n.shape.push_back(x.shape[d]);
  }
  return g.add(n);
}

}  // namespace gspmd::detail
