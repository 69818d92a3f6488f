// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/detail/ops/transition.hpp"

namespace gspmd::detail {

/// The identity on a value, as one of its own: what is computed from it is not taken for the same computed from the value, and what the value
/// was resharded to is not there for its readers (XLA's optimization_barrier).
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

/// The same, of operand 0, in a program whose nodes have no order yet: it comes behind the other operands, which it does not read.
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

/// Says on a barrier for how many bytes fewer, and what time more, its readers compute again what they read.
struct memory_saved {
  std::int64_t bytes = 0, picoseconds = 0;
  static constexpr bool is_said(const node& n) { return n.op == code_of<barrier_op> && n.attributes.count == 2; }
  static constexpr memory_saved of(const node& n) { return {n.attributes[0], n.attributes[1]}; }
  constexpr void say(node& n) const { add_attributes(n, bytes, picoseconds); }
};

/// A barrier on `x`, as it is planned, which is in no program yet.
constexpr node planned_barrier(const graph& g, int x, location at) {
  node n;
  n.op = code_of<barrier_op>;
  n.type = g.nodes[static_cast<std::size_t>(x)].type;
  n.shape = g.nodes[static_cast<std::size_t>(x)].shape;
  n.at = at;
  n.operands.push_back(x);
  return n;
}

/// Makes of each barrier, which stands behind what it is to come behind, one that is planned.
constexpr void settle_barriers(graph& g, bool) {
  for (auto& n : g.nodes) {
    if (n.op != code_of<ordered_barrier_op>) continue;
    n.op = code_of<barrier_op>;
    n.operands.count = 1;
    n.attributes.clear();
  }
}

/// Adds the identity on `x` as a value of its own, which comes behind those of `after` that may be read beside it.
constexpr int add_barrier(graph& g, int x, span<const int> after, location at) {
  if (x < 0) return -1;
  const node& from = g.nodes[static_cast<std::size_t>(x)];
  node n;
  n.op = code_of<ordered_barrier_op>;
  n.type = from.type;
  n.shape = from.shape;
  n.at = at;
  add_attributes(n, cotangent::none);  // what else has two operands in a gradient is one
  n.operands.push_back(x);
  for (const int o : after)
    if (n.operands.count < n.operands.capacity && g.nodes[static_cast<std::size_t>(o)].local_axes == from.local_axes &&
        g.is_visible(o))
      n.operands.push_back(o);
  g.settle_barriers = &settle_barriers;
  return g.add(n);
}

}  // namespace gspmd::detail
