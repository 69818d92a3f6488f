// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gspmd/detail/ir/graph.hpp"

namespace reference {

/// Visits the nodes of a program in order, and the nodes of a body in each iteration. `Values` has
///  compute(i)       computes a node that is not part of the structure of a loop or conditional
///  copy(to, from)   copies the value of node `from` to node `to`
///  count(loop, t)   sets the counter of a loop
///  holds(i)         returns true if a predicate is true
template <class Values>
class region_walk {
 public:
  using node = gspmd::detail::node;
  using opcode = gspmd::detail::opcode;

  region_walk(const gspmd::detail::graph& g, Values& values, std::int64_t most_nodes)
      : graph_(g), values_(values), left_(most_nodes) {
    run(-1);
  }
  /// Returns false if it stopped after `most_nodes` nodes, because a `while` may not end. Then the values are
  /// meaningless.
  [[nodiscard]] bool is_finished() const { return left_ >= 0; }

 private:
  [[nodiscard]] const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }

  void run(int region) {
    const int count = static_cast<int>(graph_.nodes.size());
    for (int i = 0; i < count && left_ >= 0; ++i) {
      const node& n = at(i);
      if (n.region != region || n.op == opcode::carry || n.op == opcode::loop_result) continue;
      if (n.op == opcode::loop) {
        run_loop(i);
      } else if (n.op == opcode::branch) {
        if (values_.holds(n.operands[0])) run(i);
      } else if (n.op == opcode::otherwise) {
        if (!values_.holds(at(n.operands[0]).operands[0])) run(i);
      } else if (n.op == opcode::cond_result) {
        values_.copy(i, n.operands[values_.holds(at(at(n.operands[0]).operands[0]).operands[0]) ? 1 : 2]);
      } else {
        --left_;
        values_.compute(i);
      }
    }
  }
  void run_loop(int loop) {
    std::vector<int> results;
    int last_branch = -1;  // of a while: its body is one conditional, after the nodes of the condition
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
      if (at(i).op == opcode::loop_result && at(at(i).operands[0]).region == loop) results.push_back(i);
      if (at(i).op == opcode::branch && at(i).region == loop) last_branch = i;
    }
    const bool asks = gspmd::detail::is_while(at(loop));
    for (const int r : results) values_.copy(r, at(at(r).operands[0]).operands[0]);
    bool goes_on = true;
    for (std::int64_t t = 0; goes_on && (asks || t < at(loop).integer) && left_ >= 0; ++t) {
      --left_;
      values_.count(loop, t);
      for (const int r : results) values_.copy(at(r).operands[0], r);
      run(loop);
      for (const int r : results) values_.copy(r, at(r).operands[1]);
      if (asks) goes_on = values_.holds(at(last_branch).operands[0]);
    }
  }

  const gspmd::detail::graph& graph_;
  Values& values_;
  std::int64_t left_;
};

}  // namespace reference
