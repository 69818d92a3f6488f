// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/modes/transition.hpp"

namespace gspmd::detail {

/// Adds the identity with an annotation on its result: the XlaSharding operator of GSPMD (3.1, 3.6).
constexpr int add_reshard(graph& g, int operand, const annotation& layout, location at);

/// The identity with an annotation. The plan sends the messages for the new sharding.
///
/// **Shapes.** x -> the shape of x. **Splits.** Those of the annotation; dims that the annotation leaves open may be
/// split further.
struct reshard_op : plain_operator, same_dims, without_steps, names_no_dims {
  static constexpr const char* name = "reshard";
  static constexpr origin made = origin::renamed;
  static constexpr realisation runs = realisation::loop;

  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    if (g.is_explicit) return b.send(0, add_cotangent(g, b.dy().id(), n.operands[0], n.at));
    b.send(0, add_reshard(g, b.dy().id(), n.annotation, n.at));
  }
};

constexpr int add_reshard(graph& g, int operand, const annotation& layout, location at) {
  if (operand < 0) return -1;
  node n;
  n.op = code_of<reshard_op>;
  n.type = g.nodes[static_cast<std::size_t>(operand)].type;
  n.shape = g.nodes[static_cast<std::size_t>(operand)].shape;
  n.at = at;
  n.annotated = true;
  n.annotation = layout;
  n.operands.push_back(operand);
  return g.add(n);
}

/// Adds the identity on `operand` with the sharding of `other`. Completion propagates splits between both.
constexpr int add_shard_alike(graph& g, int operand, int other, location at);

/// The identity on operand 0, with the sharding of operand 1. It does not read operand 1.
///
/// **Shapes.** Both operands and the result have the same shape. **Splits.** Every dim may be split.
struct shard_alike_op : same_dims, without_exchange, without_steps, names_no_dims {
  static constexpr const char* name = "shard_alike";
  static constexpr origin made = origin::renamed;
  static constexpr realisation runs = realisation::loop;
  static constexpr replication_words replication = ordinary_replication;

  static constexpr int reads(const node&) { return 1; }
  static constexpr bool is_made_again(const node&) { return false; }
  static constexpr bool may_go_round_ring(const node&) { return false; }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node&) {
    b.send(0, b.dy());
  }
};

constexpr int add_shard_alike(graph& g, int operand, int other, location at) {
  if (operand < 0 || other < 0 || !g.may_read({operand, other}, at, "shard_alike")) return -1;
  const node& a = g.nodes[static_cast<std::size_t>(operand)];
  const node& b = g.nodes[static_cast<std::size_t>(other)];
  if (!(a.shape == b.shape))
    return g.fail(at, "shard_alike", mistake::extent,
                  text("the tensors are ") << shape_text(a.shape) << " and " << shape_text(b.shape)
                                           << "; only tensors of one shape can have equal shardings");
  node n;
  n.op = code_of<shard_alike_op>;
  n.type = a.type;
  n.shape = a.shape;
  n.at = at;
  n.operands.push_back(operand);
  n.operands.push_back(other);
  return g.add(n);
}

}  // namespace gspmd::detail
