// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/support/sort_in_order.hpp"

/// Inputs of a program that get one annotation: the weights of equal layers are one decision.
namespace gspmd::detail {

struct input_group {
  std::vector<int> members;  // numbers of inputs
  dtype type = dtype::f32;
  extents shape;
  [[nodiscard]] std::int64_t bytes() const {  // of all members, whole
    return elements(shape) * bytes_of(type) * static_cast<std::int64_t>(members.size());
  }
};

/// A name with `#` for its numbers: layer3.w1 and layer12.w1 are `layer#.w#`.
inline std::string name_pattern(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) pattern += c;
    else if (pattern.empty() || pattern.back() != '#') pattern += '#';
  }
  return pattern;
}

/// Inputs that nobody annotated, the largest groups first. Of one group are those of the same type and shape whose names have one pattern
/// and that operators of the same kind and attributes read in the same way, with results of the same shape.
inline std::vector<input_group> groups_of_inputs(const graph& g) {
  std::vector<std::vector<std::string>> reads(g.nodes.size());
  std::vector<bool> is_input(g.nodes.size(), false);
  for (const int i : g.inputs) is_input[static_cast<std::size_t>(i)] = true;
  for (const auto& n : g.nodes)
    for (int k = 0; k < n.operands.count; ++k) {
      if (!is_input[static_cast<std::size_t>(n.operands[k])]) continue;
      std::string read = std::string(name_of(n.op)) + ' ' + std::to_string(k) + (n.in_gradient ? " gradient" : "") + " (";
      for (const auto a : n.attributes) read += std::to_string(a) + ' ';
      reads[static_cast<std::size_t>(n.operands[k])].push_back(read + ") " + std::string(shape_text(n.shape).view()));
    }
  std::map<std::string, std::size_t> known;
  std::vector<input_group> groups;
  for (std::size_t i = 0; i < g.inputs.size(); ++i) {
    const auto id = static_cast<std::size_t>(g.inputs[i]);
    const node& n = g.nodes[id];
    if (n.annotated) continue;
    std::sort(reads[id].begin(), reads[id].end());
    std::string key = std::string(name_of(n.type)) + std::string(shape_text(n.shape).view()) + ' ' + name_pattern(n.at.name());
    for (const auto& r : reads[id]) key += '\n' + r;
    const auto [it, is_new] = known.try_emplace(std::move(key), groups.size());
    if (is_new) groups.push_back({{}, n.type, n.shape});
    groups[it->second].members.push_back(static_cast<int>(i));
  }
  sort_in_order(groups, [](const auto& a, const auto& b) { return a.bytes() > b.bytes(); });
  return groups;
}

}  // namespace gspmd::detail
