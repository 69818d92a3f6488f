// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/add_pass.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/modes/transition.hpp"
#include "gspmd/detail/ops/reshape.hpp"

namespace gspmd::detail {

/// The identity, as a value of its own (XLA's optimization_barrier). Equal computations on the barrier and on its
/// operand are not merged. Users of the barrier do not read reshards of the operand.
///
/// **Shapes.** x -> the shape of x. **Splits.** Every dim may be split, and the result has the sharding of the operand.
struct barrier_op : reshape_op {
  static constexpr const char* name = "optimization_barrier";
  static constexpr bool uniform = true;
  static constexpr bool keeps_slices = true;

  static constexpr void rule(const graph&, const node& n, op_rule& rule) { uniform_rule(n.shape, rule); }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node&) {
    b.send(0, b.dy());
  }
};

/// The barrier in a program whose nodes have no order yet. Operand 0 is the value. The barrier is placed after the
/// other operands, which it does not read. settle_barriers_pass replaces it by barrier_op.
struct ordered_barrier_op : plain_operator, without_steps {
  static constexpr const char* name = barrier_op::name;
  static constexpr origin made = origin::renamed;
  static constexpr realisation runs = realisation::loop;
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  static constexpr leading_dim leading{.is = leading_dim::way::first};

  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    tensor_map map;
    for (int d = 0; d < n.shape.count; ++d) {
      map.begin_dim();
      map.add_factor(rule.add_factor(n.shape[d]));
    }
    rule.maps.push_back(map);
    for (int k = 1; k < n.operands.count; ++k) {
      tensor_map other;
      for (int d = 0; d < operand_of(g, n, k).shape.count; ++d) other.begin_dim();
      rule.maps.push_back(other);
    }
    rule.maps.push_back(map);
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node&) {
    b.send(0, b.dy());
  }
};

/// The attributes of a barrier that save_memory added: the bytes that its users save by recomputing their operands, and
/// the additional time in picoseconds.
struct memory_saved {
  std::int64_t bytes = 0, picoseconds = 0;
  static constexpr bool is_said(const node& n) { return n.op == code_of<barrier_op> && n.attributes.count == 2; }
  static constexpr memory_saved of(const node& n) { return {n.attributes[0], n.attributes[1]}; }
  constexpr void say(node& n) const { add_attributes(n, bytes, picoseconds); }
};

/// Returns a barrier on `x` as a barrier_op. The caller adds the node to the program.
constexpr node planned_barrier(const graph& g, int x, location at) {
  node n;
  n.op = code_of<barrier_op>;
  n.type = g.nodes[static_cast<std::size_t>(x)].type;
  n.shape = g.nodes[static_cast<std::size_t>(x)].shape;
  n.at = at;
  n.operands.push_back(x);
  return n;
}

/// Replaces each ordered barrier by a barrier_op, because the order of the nodes is final.
struct settle_barriers_pass : plain_pass {
  static constexpr const char* name = "settle barriers";
  static constexpr pass_position position = pass_position::settled;
  static constexpr bool applies(const graph&) { return true; }
  static constexpr node_order run(graph& g) {
    for (auto& n : g.nodes) {
      if (n.op != code_of<ordered_barrier_op>) continue;
      n.op = code_of<barrier_op>;
      n.operands.count = 1;
      n.attributes.clear();
    }
    return node_order::kept;
  }
};

/// Adds a barrier on `x`. The barrier is placed after those values of `after` that may be read together with `x`.
constexpr int add_barrier(graph& g, int x, span<const int> after, location at) {
  if (x < 0) return -1;
  const node& from = g.nodes[static_cast<std::size_t>(x)];
  node n;
  n.op = code_of<ordered_barrier_op>;
  n.type = from.type;
  n.shape = from.shape;
  n.at = at;
  add_attributes(n, cotangent::none);  // otherwise a gradient takes an operator with two operands for a cotangent
  n.operands.push_back(x);
  for (const int o : after)
    if (n.operands.count < n.operands.capacity && g.nodes[static_cast<std::size_t>(o)].local_axes == from.local_axes &&
        g.is_visible(o))
      n.operands.push_back(o);
  add_pass<settle_barriers_pass>(g);
  return g.add(n);
}

}  // namespace gspmd::detail
