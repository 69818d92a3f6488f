// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/sources.hpp"

/// Loops and conditionals (GSPMD 3.2: `while` and `if` of XLA).
namespace gspmd::detail {

/// Nodes are added to another region while it lives.
class region_scope {
 public:
  constexpr region_scope(graph& g, int region) : graph_(g), before_(g.open_region) { g.open_region = region; }
  constexpr ~region_scope() { graph_.open_region = before_; }
  region_scope(const region_scope&) = delete;

 private:
  graph& graph_;
  int before_;
};

/// Opens the body of a loop; the node's value is the counter, 0 to trips - 1, and every device has it whole.
constexpr int open_loop(graph& g, std::int64_t trips, location at) {
  if (trips < 0) return g.fail(at, "loop", mistake::region, text("runs ") << trips << " times; give 0 or more");
  node n = source(opcode::loop, dtype::s64, {}, at);
  n.integer = trips;
  return g.open(n);
}

/// Opens the body of a loop that runs as long as a condition holds, which is one conditional: what it carries goes round it unchanged where
/// the condition does not hold, and that was the last trip. How many trips there are is not known: it counts as one.
constexpr int open_while(graph& g, location at) {
  node n = source(opcode::loop, dtype::s64, {}, at);
  n.integer = 1;
  set_while(n);
  return g.open(n);
}

/// The identity in a region: a carried value as its iteration finds it, or what a branch gives.
constexpr node copy_of(const graph& g, const operator_code& op, int x, location at) {
  node n = source(op, g.nodes[static_cast<std::size_t>(x)].type, g.nodes[static_cast<std::size_t>(x)].shape, at);
  n.operands.push_back(x);
  return n;
}

/// Adds a value carried from iteration to iteration, to the loop that is open.
constexpr int add_carry(graph& g, int init, location at) { return init < 0 ? -1 : g.add(copy_of(g, opcode::carry, init, at)); }

/// The carried value after the last iteration. `next`, of the body, is what the following iteration finds.
constexpr int add_loop_result(graph& g, int carry, int next, location at) {
  if (carry < 0 || next < 0) return -1;
  const int loop = g.nodes[static_cast<std::size_t>(carry)].region;
  node n = copy_of(g, opcode::loop_result, carry, at);
  n.operands.push_back(next);
  const region_scope outside(g, g.nodes[static_cast<std::size_t>(loop)].region);
  return g.add(n);
}

/// Opens what is computed where `pred`, a bool of rank 0, holds.
constexpr int open_branch(graph& g, int pred, location at) {
  if (pred < 0) return -1;
  const node& p = g.nodes[static_cast<std::size_t>(pred)];
  if (p.type != dtype::pred || p.shape.count != 0)
    return g.fail(at, "cond", mistake::region,
                  text("the condition is ") << name_of(p.type) << shape_text(p.shape)
                                            << "; it must be one bool, of rank 0: compare, then reduce with and_ or or_");
  return g.open(copy_of(g, opcode::branch, pred, at));
}
/// Closes it and opens what is computed otherwise.
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

/// The operators that begin a body or carry a value through it: a carried value and what follows it are sharded alike, so that completion
/// goes round the loop to a fixed point. The passes that know regions do the rest; so does the gradient (passes/grad/grad.hpp).
struct region_op : named_by_opcode, plain_operator, same_dims, without_steps, names_no_dims {
  static constexpr bool owns(const operator_code& op) { return is_region(op) && op != opcode::cond_result; }
  static constexpr origin made = origin::region;
  static constexpr realisation runs = realisation::region;

  static constexpr void gradient(gradient_builder&, const node&) {}
};

struct cond_result_op : named_by_opcode, plain_operator, without_steps, names_no_dims {
  static constexpr bool owns(const operator_code& op) { return op == opcode::cond_result; }
  static constexpr origin made = origin::region;
  static constexpr realisation runs = realisation::region;
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;

  /// The choice is no tensor with dims; the two values and the result correspond dim by dim.
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
