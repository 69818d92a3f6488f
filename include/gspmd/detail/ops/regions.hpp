// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/rule.hpp"
#include "gspmd/detail/ops/sources.hpp"

/// Loops and conditionals (F145, F146), and reading and writing one row of a tensor at an index that is computed.
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

/// The identity in a region: a carried value as its iteration finds it, or what a branch gives.
constexpr node copy_of(const graph& g, opcode op, int x, location at) {
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

/// The choice is no tensor with dims; the two values and the result correspond dim by dim.
constexpr void cond_result_rule(const node& n, op_rule& rule) {
  tensor_map map;
  for (int d = 0; d < n.shape.count; ++d) {
    map.begin_dim();
    map.add_factor(rule.add_factor(n.shape[d]));
  }
  rule.maps.push_back({});
  for (int k = 0; k < 3; ++k) rule.maps.push_back(map);
}

constexpr bool is_index(const graph& g, int i) {
  const node& n = g.nodes[static_cast<std::size_t>(i)];
  return n.type == dtype::s64 && n.shape.count == 0;
}

/// Adds row `index` (s64, rank 0) of `x`: dim 0 is gone. An index outside is moved to the nearest row, as in StableHLO.
constexpr int add_dynamic_index(graph& g, int x, int index, location at) {
  if (x < 0 || index < 0) return -1;
  const node& from = g.nodes[static_cast<std::size_t>(x)];
  if (from.shape.count == 0) return g.fail(at, "dynamic_index", mistake::rank, "a tensor of rank 0 has no rows");
  if (!is_index(g, index)) return g.fail(at, "dynamic_index", mistake::type, "the index must be one s64, of rank 0");
  node n = source(opcode::dynamic_index, from.type, {}, at);
  for (int d = 1; d < from.shape.count; ++d) n.shape.push_back(from.shape[d]);
  n.operands.push_back(x);
  n.operands.push_back(index);
  return g.add(n);
}

/// Adds `x` with `row` in the place of its row `index`.
constexpr int add_dynamic_update(graph& g, int x, int row, int index, location at) {
  if (x < 0 || row < 0 || index < 0) return -1;
  const node& to = g.nodes[static_cast<std::size_t>(x)];
  const node& r = g.nodes[static_cast<std::size_t>(row)];
  bool fits = to.shape.count == r.shape.count + 1 && to.type == r.type;
  for (int d = 0; d < r.shape.count && fits; ++d) fits = to.shape[d + 1] == r.shape[d];
  if (!fits)
    return g.fail(at, "dynamic_update", mistake::extent,
                  text("a row ") << name_of(r.type) << shape_text(r.shape) << " does not fit " << name_of(to.type)
                                 << shape_text(to.shape) << "; its dims must be those after the first");
  if (!is_index(g, index)) return g.fail(at, "dynamic_update", mistake::type, "the index must be one s64, of rank 0");
  node n = source(opcode::dynamic_update, to.type, to.shape, at);
  n.operands.push_back(x);
  n.operands.push_back(row);
  n.operands.push_back(index);
  return g.add(n);
}

/// `nab,->ab` and `nab,ab,->nab`: every device finds the row, so dim 0 must not be split.
constexpr void row_rule(const graph& g, const node& n, op_rule& rule) {
  const extents& whole = g.nodes[static_cast<std::size_t>(n.operands[0])].shape;
  tensor_map all;
  tensor_map row;
  for (int d = 0; d < whole.count; ++d) {
    const int f = rule.add_factor(whole[d], d == 0 ? factor_kind::gathered : factor_kind::parallel);
    all.begin_dim();
    all.add_factor(f);
    if (d == 0) continue;
    row.begin_dim();
    row.add_factor(f);
  }
  rule.maps.push_back(all);
  if (n.op == opcode::dynamic_update) rule.maps.push_back(row);
  rule.maps.push_back({});
  rule.maps.push_back(n.op == opcode::dynamic_update ? all : row);
}

}  // namespace gspmd::detail
