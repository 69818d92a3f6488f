// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "gspmd/extend/operator.hpp"

// An operator that the library does not have: the sum over the last dim. This header alone adds it.
namespace new_operator {

using namespace gspmd::extend;

/// Adds an operator that reduces the last dim.
template <class Op>
constexpr int add_last(graph& g, int operand, gspmd::location at);

/// `ab->a`
struct sum_last_op {
  static constexpr const char* name = "sum_last";
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  static constexpr replication_words replication = ordinary_replication;
  static constexpr leading_dim leading{};

  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    tensor_map operand, result;
    for (int d = 0; d <= n.shape.count; ++d) {
      const bool is_last = d == n.shape.count;
      const int f = rule.add_factor(operand_of(g, n, 0).shape[d], is_last ? factor_kind::reduction : factor_kind::parallel);
      operand.begin_dim();
      operand.add_factor(f);
      if (is_last) continue;
      result.begin_dim();
      result.add_factor(f);
    }
    rule.maps.push_back(operand);
    rule.maps.push_back(result);
    rule.reduced_by = monoid::add;
  }
  static constexpr operator_class meets(const node&, monoid kind) {
    return {kind == monoid::add ? partial_class::all : partial_class::none};
  }
  static constexpr dim_mask exchanges(const node&) { return 0; }
  static constexpr own_collectives sends = nullptr;
  static constexpr int reads(const node&) { return 1; }
  static constexpr bool is_made_again(const node&) { return false; }
  static constexpr bool may_go_round_ring(const node&) { return false; }
  static constexpr bool composes = false;
  static constexpr int movements(const node&) { return 0; }
  static constexpr index_map map(const graph&, const node&, int) { return {}; }
  static constexpr int tiles(const node&) { return 0; }
  static constexpr index_map tile(const graph&, const node&, int) { return {}; }
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return saturating_elements(p.value(op.operands[0]).local);
  }
  static constexpr scalar_op in_loop(const graph&, const node&) { return {}; }
  static constexpr dim_places lies_along(const graph&, const node&) { return {}; }
  static constexpr void name_dim(text& t, const graph&, const node&, int, int dim) { t << " (dim " << dim << " of sum_last)"; }

  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const extents shape = b.at(n.operands[0]).shape;
    dim_places kept;
    for (int d = 0; d < n.shape.count; ++d) kept.push_back(static_cast<std::int8_t>(d));
    b.send(0, add_broadcast(b.program(), b.dy().id(), shape, kept, n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    l.reduce(op, op.operands[0], op.result, dim_bit(l.node_of(op).shape.count), monoid::add);
  }
  static void describe(std::string& t, const plan_view&, const plan_step* step) {
    if (step != nullptr) t += " of the last dim";
  }
};

template <class Op>
constexpr int add_last(graph& g, int operand, gspmd::location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  if (x.shape.count == 0) return g.fail(at, Op::name, mistake::rank, "a tensor of rank 0 has no last dim; give it one");
  node n;
  n.op = code_of<Op>;
  n.type = x.type;
  n.at = at;
  n.operands.push_back(operand);
  for (int d = 0; d + 1 < x.shape.count; ++d) n.shape.push_back(x.shape[d]);
  return g.add(n);
}

}  // namespace new_operator
