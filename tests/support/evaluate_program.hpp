// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "support/reference.hpp"

namespace reference {

/// The naive evaluator for programs with loops and conditionals: every body is computed as often as it runs.
class evaluation {
 public:
  std::vector<host_array> values;  // by node; of a body as its last run left them
  double largest = 0;              // the largest magnitude that any floating value ever had

  evaluation(const graph& g, const std::vector<host_array>& inputs) : values(g.nodes.size()), graph_(g) {
    for (std::size_t k = 0; k < inputs.size(); ++k) values[static_cast<std::size_t>(g.inputs[k])] = inputs[k];
    run(-1);
  }

 private:
  [[nodiscard]] const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  host_array& of(int i) { return values[static_cast<std::size_t>(i)]; }
  void set(int i, host_array x) {
    for (const double r : x.reals) largest = std::max(largest, std::fabs(r));
    of(i) = std::move(x);
  }
  /// Computes the nodes that stand in the body of `region`, in their order.
  void run(int region) {
    const int count = static_cast<int>(graph_.nodes.size());
    for (int i = 0; i < count; ++i) {
      const node& n = at(i);
      if (n.region != region || n.op == opcode::carry) continue;
      if (n.op == opcode::loop) {
        run_loop(i);
      } else if (n.op == opcode::branch) {
        if (of(n.operands[0]).ints[0] != 0) run(i);
      } else if (n.op == opcode::otherwise) {
        if (of(at(n.operands[0]).operands[0]).ints[0] == 0) run(i);
      } else if (n.op == opcode::cond_result) {
        const bool taken = of(at(at(n.operands[0]).operands[0]).operands[0]).ints[0] != 0;
        set(i, host_array(of(n.operands[taken ? 1 : 2])));
      } else if (n.op != opcode::loop_result) {
        set(i, evaluate_node(graph_, i, values));
      }
    }
  }
  void run_loop(int loop) {
    std::vector<int> results;
    for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i)
      if (at(i).op == opcode::loop_result && at(at(i).operands[0]).region == loop) results.push_back(i);
    for (const int r : results) of(r) = host_array(of(at(at(r).operands[0]).operands[0]));
    for (std::int64_t t = 0; t < at(loop).integer; ++t) {
      of(loop) = host_array(dtype::s64, {});
      of(loop).ints[0] = t;
      for (const int r : results) of(at(r).operands[0]) = host_array(of(r));
      run(loop);
      for (const int r : results) of(r) = host_array(of(at(r).operands[1]));
    }
  }

  const graph& graph_;
};

}  // namespace reference
