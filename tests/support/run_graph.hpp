// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "support/graph_builder.hpp"
#include "support/traced.hpp"

namespace layouts {

/// Runs a program on simulated devices. Its inputs are small whole numbers, so that every sum is exact in any order.
/// Returns the mistake in the outputs, or "".
inline std::string wrong_run(const graph_builder& b) {
  std::vector<int> sizes(b.mesh.sizes.begin(), b.mesh.sizes.end());
  reference::traced program(sizes);
  program.g = b.g;
  program.mesh.request = b.request;
  program.g.mesh = &program.mesh;
  std::int64_t number = 0;
  for (const int i : b.g.inputs) {
    const node& n = b.g.nodes[static_cast<std::size_t>(i)];
    reference::host_array x(n.type, std::vector<std::int64_t>(n.shape.begin(), n.shape.end()));
    for (auto& r : x.reals) r = static_cast<double>(++number * 7 % 11 - 5);
    for (auto& r : x.ints) r = ++number * 7 % 11 - 5;
    program.inputs.push_back(x);
  }
  const reference::partitioned_run run(program);
  if (!run.wrong.empty()) return run.wrong;
  const auto values = program.evaluate(static_cast<int>(b.g.nodes.size()) - 1);
  for (std::size_t k = 0; k < run.outputs.size(); ++k) {
    const auto& wanted = values[static_cast<std::size_t>(b.g.outputs[k])];
    for (std::size_t e = 0; e < wanted.size(); ++e) {
      const bool same = wanted.floating()
                            ? std::fabs(wanted.reals[e] - run.outputs[k].reals[e]) <= 1e-6 * std::fabs(wanted.reals[e])
                            : wanted.ints[e] == run.outputs[k].ints[e];
      if (!same)
        return "element " + std::to_string(e) + " of output " + std::to_string(k) + " is " +
               std::to_string(run.outputs[k].reals[e]) + ", not " + std::to_string(wanted.reals[e]);
    }
  }
  return {};
}

}  // namespace layouts
