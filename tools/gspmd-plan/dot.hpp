// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "table.hpp"

/// Draws the program of every device as a graph for Graphviz, with a colour for each kind of collective.
namespace plan_tool {

inline std::string dot_text(std::string_view s) {
  std::string t = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') t += '\\';
    t += c;
  }
  return t + '"';
}
inline const char* dot_colour(const std::string& kind) {
  static const std::map<std::string, const char*> colours = {{"all_reduce", "#f4a6a6"},
                                                             {"reduce_scatter", "#f7cf9e"},
                                                             {"all_gather", "#f5ee9e"},
                                                             {"all_to_all", "#b7d7f5"},
                                                             {"collective_permute", "#d9c2f0"}};
  const auto it = colours.find(kind);
  return it == colours.end() ? "#ffffff" : it->second;
}

inline std::string dot_graph(const planned_program& p) {
  const auto label_of = [&p](int local_value) {
    const auto& v = p.on_device(local_value).tensor;
    return std::string(gspmd::name_of(v.type())) + ' ' + shape_text(v.local_shape()) + ' ' + v.text();
  };
  const auto node = [](int local_value) { return 'v' + std::to_string(local_value); };
  const auto escaped_lines = [](const std::string& a, const std::string& b) {
    auto first = dot_text(a), second = dot_text(b);
    first.pop_back();
    return first + "\\n" + second.substr(1);
  };
  std::string t = "digraph plan {\n  node [shape=box, style=filled, fillcolor=\"#ffffff\", fontname=\"sans-serif\"];\n";
  for (const int v : p.plan.inputs())
    t += "  " + node(v) +
         " [shape=ellipse, fillcolor=\"#e6e6e6\", label=" + escaped_lines(p.value(p.on_device(v).label).name, label_of(v)) +
         "];\n";
  std::vector<const instruction*> halos;  // of the next instruction
  for (const auto& i : p.plan.instructions()) {
    if (i.is_halo) halos.push_back(&i);
    if (i.result < 0) continue;
    std::string title = planned_program::kind_of(i) + ' ' + p.value(i.label).name;
    const auto message = [](const instruction& sends) { return " over " + sends.axes + ", " + with_unit(sends.bytes); };
    if (i.communicates) title += message(i);
    for (const instruction* halo : halos) title += ", " + halo->kind + message(*halo);
    const instruction& sends = halos.empty() ? i : *halos.back();
    t += "  " + node(i.result) + " [label=" + escaped_lines(title, label_of(i.result));
    if (sends.communicates) t += std::string(", fillcolor=\"") + dot_colour(sends.kind) + '"';
    halos.clear();
    t += "];\n";
    for (const int o : i.operands) t += "  " + node(o) + " -> " + node(i.result) + ";\n";
    for (const int r : i.further_results)
      t += "  " + node(r) + " [label=" + escaped_lines(p.value(p.on_device(r).label).name, label_of(r)) + "];\n  " +
           node(i.result) + " -> " + node(r) + ";\n";
  }
  const auto outputs = p.plan.outputs();
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    t += "  out" + std::to_string(k) + " [shape=ellipse, peripheries=2, label=" + dot_text(p.value(p.built.outputs[k]).name) +
         "];\n";
    t += "  " + node(outputs[k]) + " -> out" + std::to_string(k) + ";\n";
  }
  return t + "}\n";
}

}  // namespace plan_tool
