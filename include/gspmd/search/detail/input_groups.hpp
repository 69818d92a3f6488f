// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/support/sort_in_order.hpp"
#include "gspmd/detail/support/text.hpp"

/// Inputs of a program that get the same annotation. For example, the weights of equal layers are one decision of the
/// search.
namespace gspmd::detail {

struct input_group {
  constant_vector<int> members;  // numbers of inputs
  dtype type = dtype::f32;
  extents shape;
  [[nodiscard]] constexpr std::int64_t bytes() const {  // of all members, unsharded
    return elements(shape) * bytes_of(type) * static_cast<std::int64_t>(members.size());
  }
};

/// Returns a name with `#` instead of its numbers: layer3.w1 and layer12.w1 give `layer#.w#`.
constexpr text name_pattern(std::string_view name) {
  text pattern;
  bool in_number = false;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit) pattern << c;
    else if (!in_number) pattern << '#';
    in_number = is_digit;
  }
  return pattern;
}

/// Returns the groups of inputs without annotation, the largest groups first. Inputs of a group have the same type,
/// shape and name pattern. They have users of the same kind, attributes, operand position and result shape.
constexpr constant_vector<input_group> groups_of_inputs(const graph& g) {
  constant_vector<int> number(g.nodes.size(), -1);  // by node: the number of the input, or -1
  for (std::size_t i = 0; i < g.inputs.size(); ++i) number[static_cast<std::size_t>(g.inputs[i])] = static_cast<int>(i);
  constant_vector<constant_vector<text>> reads(g.inputs.size());
  for (const auto& n : g.nodes)
    for (int k = 0; k < n.operands.count; ++k) {
      const int input = number[static_cast<std::size_t>(n.operands[k])];
      if (input < 0) continue;
      text read(name_of(n.op));
      read << ' ' << k << (n.in_gradient ? " gradient" : "") << " (";
      for (const auto a : n.attributes) read << static_cast<std::int64_t>(a) << ' ';
      reads[static_cast<std::size_t>(input)].push_back(read << ") " << shape_text(n.shape));
    }
  constant_vector<std::pair<text, int>> keys;  // and the inputs
  for (std::size_t i = 0; i < g.inputs.size(); ++i) {
    const node& n = g.nodes[static_cast<std::size_t>(g.inputs[i])];
    if (n.annotated) continue;
    sort_in_order(reads[i], [](const text& a, const text& b) { return a.view() < b.view(); });
    text key(name_of(n.type));
    key << shape_text(n.shape) << ' ' << name_pattern(n.at.name());
    for (const auto& r : reads[i]) key << '\n' << r;
    keys.emplace_back(std::move(key), static_cast<int>(i));
  }
  sort_in_order(keys, [](const auto& a, const auto& b) { return a.first.view() < b.first.view(); });
  constant_vector<input_group> groups;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const node& n = g.nodes[static_cast<std::size_t>(g.inputs[keys[k].second])];
    if (k == 0 || keys[k].first.view() != keys[k - 1].first.view()) groups.push_back({{}, n.type, n.shape});
    groups.back().members.push_back(keys[k].second);
  }
  sort_in_order(groups, [](const auto& a, const auto& b) {
    return a.bytes() > b.bytes() || (a.bytes() == b.bytes() && a.members.front() < b.members.front());
  });
  return groups;
}

}  // namespace gspmd::detail
