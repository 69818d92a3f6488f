// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/ir/graph.hpp"

namespace gspmd::detail {

/// The same program with its nodes numbered by what they mean: the inputs in order, then what the outputs need, operands first
/// and in order. What no output needs is gone.
///
/// A trace numbers operators as the callable's expressions are evaluated, and C++ leaves the order of arguments open: GCC
/// evaluates `f(g(x), h(x))` in one order in a constant and in another one at run time. Plans must not depend on that.
constexpr graph canonical_order(const graph& traced) {
  graph result;
  result.mesh = traced.mesh;
  result.allow_replication = traced.allow_replication;
  std::vector<int> number(traced.nodes.size(), -1);
  const auto add = [&](int i) {
    node n = traced.nodes[static_cast<std::size_t>(i)];
    for (auto& o : n.operands) o = number[static_cast<std::size_t>(o)];
    number[static_cast<std::size_t>(i)] = result.add(n);
  };
  for (const int i : traced.inputs) {
    add(i);
    result.inputs.push_back(number[static_cast<std::size_t>(i)]);
  }
  struct visit {
    int node;
    int next;  // operand
  };
  std::vector<visit> path;
  for (const int o : traced.outputs) {
    path.push_back({o, 0});
    while (!path.empty()) {
      const int i = path.back().node;
      if (number[static_cast<std::size_t>(i)] >= 0) {
        path.pop_back();
        continue;
      }
      const auto& operands = traced.nodes[static_cast<std::size_t>(i)].operands;
      if (path.back().next < operands.count) {
        path.push_back({operands[path.back().next++], 0});
      } else {
        add(i);
        path.pop_back();
      }
    }
    result.outputs.push_back(number[static_cast<std::size_t>(o)]);
  }
  return result;
}

}  // namespace gspmd::detail
