// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gspmd/detail/ir/graph.hpp"

namespace reference {

/// Computes the nodes of a program in their order, those of a body as often as it runs. `Values` has
///   compute(i)       a node that is no part of a loop or conditional as such
///   copy(to, from)   what a node is becomes what another one was
///   count(loop, t)   the counter of a loop
///   holds(i)         whether a predicate holds
template <class Values>
class region_walk {
 public:
  using node = gspmd::detail::node;
  using opcode = gspmd::detail::opcode;

  region_walk(const gspmd::detail::graph& g, Values& values, std::int64_t most_nodes)
      : graph_(g), values_(values), left_(most_nodes) {
    run(-1);
  }
  /// False where it would compute more than `most_nodes` nodes: a `while` need not end. What the values are then says nothing.
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
    int last_branch = -1;  // of a while: its body is one conditional, after what the condition is computed by
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
