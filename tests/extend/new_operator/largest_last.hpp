// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "extend/new_operator/sum_last.hpp"
#include "gspmd/extend/elementwise.hpp"

// An operator that reduces by another monoid: the maximum over the last dim. Only the facts below differ from the sum.
namespace new_operator {

/// `ab->a`
struct largest_last_op : sum_last_op {
  static constexpr const char* name = "largest_last";

  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    sum_last_op::rule(g, n, rule);
    rule.reduced_by = monoid::max;
  }
  static constexpr operator_class meets(const node&, monoid kind) {
    return {kind == monoid::max ? partial_class::all : partial_class::none};
  }
  /// If several elements equal the maximum, they share the gradient evenly.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    const extents shape = b.at(n.operands[0]).shape;
    dim_places kept;
    for (int d = 0; d < n.shape.count; ++d) kept.push_back(static_cast<std::int8_t>(d));
    const auto spread = [&](int v) { return b.as_term(add_broadcast(g, v, shape, kept, n.at)); };
    const term is_it = term::of<compare_eq_op>(b.in(0), spread(b.y().id()));
    const term one = b.in(0).number(1), ones = term::of<where_op>(is_it, one, b.in(0).number(0));
    b.send(0, ones * spread(b.dy().id()) / spread(add_last<sum_last_op>(g, ones.id(), n.at)));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    l.reduce(op, op.operands[0], op.result, dim_bit(l.node_of(op).shape.count), monoid::max);
  }
};

}  // namespace new_operator
