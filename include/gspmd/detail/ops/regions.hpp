// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/sources.hpp"

/// Loops and conditionals (GSPMD 3.2; `while` and `if` in XLA).
namespace gspmd::detail {

/// Adds the nodes during its lifetime to another region.
class region_scope {
 public:
  constexpr region_scope(graph& g, int region) : graph_(g), before_(g.open_region) { g.open_region = region; }
  constexpr ~region_scope() { graph_.open_region = before_; }
  region_scope(const region_scope&) = delete;

 private:
  graph& graph_;
  int before_;
};

/// Opens the body of a loop. The value of the node is the counter, from 0 to trips - 1, whole on each device.
constexpr int open_loop(graph& g, std::int64_t trips, location at) {
  if (trips < 0) return g.fail(at, "loop", mistake::region, text("runs ") << trips << " times; give 0 or more");
  node n = source(opcode::loop, dtype::s64, {}, at);
  n.integer = trips;
  return g.open(n);
}

/// Opens the body of a loop that runs while a condition is true. The body is one conditional. If the condition is
/// false, the carried values pass unchanged, and the loop ends after this iteration. The number of iterations is
/// unknown and counts as 1.
constexpr int open_while(graph& g, location at) {
  node n = source(opcode::loop, dtype::s64, {}, at);
  n.integer = 1;
  set_while(n);
  return g.open(n);
}

/// Returns the identity in a region: a carried value at the start of its iteration, or the result of a branch.
constexpr node copy_of(const graph& g, const operator_code& op, int x, location at) {
  node n = source(op, g.nodes[static_cast<std::size_t>(x)].type, g.nodes[static_cast<std::size_t>(x)].shape, at);
  n.operands.push_back(x);
  return n;
}

/// Adds a carried value to the open loop.
constexpr int add_carry(graph& g, int init, location at) { return init < 0 ? -1 : g.add(copy_of(g, opcode::carry, init, at)); }

/// Adds the carried value after the last iteration. `next` is a value of the body: the carried value of the following
/// iteration.
constexpr int add_loop_result(graph& g, int carry, int next, location at) {
  if (carry < 0 || next < 0) return -1;
  const int loop = g.nodes[static_cast<std::size_t>(carry)].region;
  node n = copy_of(g, opcode::loop_result, carry, at);
  n.operands.push_back(next);
  const region_scope outside(g, g.nodes[static_cast<std::size_t>(loop)].region);
  return g.add(n);
}

/// Opens the branch that is computed if `pred`, a bool of rank 0, is true.
constexpr int open_branch(graph& g, int pred, location at) {
  if (pred < 0) return -1;
  const node& p = g.nodes[static_cast<std::size_t>(pred)];
  if (p.type != dtype::pred || p.shape.count != 0)
    return g.fail(at, "cond", mistake::region,
                  text("the condition is ") << name_of(p.type) << shape_text(p.shape)
                                            << "; it must be one bool, of rank 0: compare, then reduce with and_ or or_");
  return g.open(copy_of(g, opcode::branch, pred, at));
}
/// Closes the branch, and opens the branch that is computed otherwise.
constexpr int open_otherwise(graph& g, int branch, location at) {
  g.open_region = g.nodes[static_cast<std::size_t>(branch)].region;
  return g.open(copy_of(g, opcode::otherwise, branch, at));
}
constexpr int add_cond_result(graph& g, int otherwise, int on_true, int on_false, location at) {
  if (on_true < 0 || on_false < 0) return -1;
  node n = copy_of(g, opcode::cond_result, on_true, at);
  n.operands.insert(0, otherwise);
  n.operands.push_back(on_false);
  const region_scope outside(g, g.nodes[static_cast<std::size_t>(otherwise)].region);
  return g.add(n);
}

/// The operators that begin a body or carry a value through it. A carried value and its next value have the same
/// sharding, so completion iterates over the loop until a fixed point. The region passes and the gradient
/// (passes/grad/grad.hpp) do the rest.
struct region_op : named_by_opcode, plain_operator, same_dims, without_steps, names_no_dims {
  static constexpr bool owns(const operator_code& op) { return is_region(op) && op != opcode::cond_result; }
  static constexpr origin made = origin::region;
  static constexpr realisation runs = realisation::region;

  static constexpr void gradient(gradient_builder&, const node&) {}
};

/// The result of a conditional.
///
/// **Shapes.** Both values have the shape of the result. **Splits.** Every dim may be split, equally in both values and
/// the result.
struct cond_result_op : named_by_opcode, plain_operator, without_steps, names_no_dims {
  static constexpr bool owns(const operator_code& op) { return op == opcode::cond_result; }
  static constexpr origin made = origin::region;
  static constexpr realisation runs = realisation::region;
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;

  /// The predicate has no dims. Both values and the result correspond dim by dim.
  static constexpr void rule(const graph&, const node& n, op_rule& rule) {
    tensor_map map;
    for (int d = 0; d < n.shape.count; ++d) {
      map.begin_dim();
      map.add_factor(rule.add_factor(n.shape[d]));
    }
    rule.maps.push_back({});
    for (int k = 0; k < 3; ++k) rule.maps.push_back(map);
  }
  static constexpr void gradient(gradient_builder&, const node&) {}
};

}  // namespace gspmd::detail
