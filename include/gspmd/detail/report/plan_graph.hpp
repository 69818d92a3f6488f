// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gspmd/budget.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/report/svg_text.hpp"

namespace gspmd::detail {

/// The program of one device as a graph of the plan's steps and the values between them: for Graphviz, and as JSON.
class plan_graph {
 public:
  plan_graph(const plan_view& plan, const mesh_info& mesh) : plan_(plan), mesh_(mesh), operators_(plan.steps.size()) {
    for (const auto& n : plan.nodes) {
      if (n.value < 0 || words_of(n.op).made == origin::given) continue;
      const int step = plan.value(n.value).step;
      if (step < 0) continue;
      auto& names = operators_[static_cast<std::size_t>(step)];
      if (std::find(names.begin(), names.end(), name_of(n.op)) == names.end()) names.emplace_back(name_of(n.op));
    }
  }

  [[nodiscard, gnu::cold]] std::string dot() const {
    std::string t = "digraph plan {\n  node [shape=box, style=filled, fillcolor=\"#ffffff\", fontname=\"sans-serif\"];\n";
    for (const int v : plan_.inputs)
      t += "  v" + std::to_string(v) +
           " [shape=ellipse, fillcolor=\"#e6e6e6\", label=" + quoted(input_name(v) + ": " + value_text(v)) + "];\n";
    std::vector<int> maker(plan_.values.size(), -1);  // the last step so far
    const auto from = [&](int v) {
      const int step = maker[static_cast<std::size_t>(v)];
      return step < 0 ? 'v' + std::to_string(v) : 's' + std::to_string(step);
    };
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const auto& s = plan_.steps[i];
      if (facts_of(s).work == step_work::controls) continue;
      t += "  s" + std::to_string(i) + " [label=" + quoted(title(i));
      if (communicates(s)) t += std::string(", fillcolor=\"") + colour_of(static_cast<int>(s.collective)) + '"';
      t += "];\n";
      for (int k = 0; k < s.operands.count; ++k) {
        const int v = plan_.slots[static_cast<std::size_t>(s.operands.begin + k)];
        t += "  " + from(v) + " -> s" + std::to_string(i) + " [label=" + quoted(value_text(v)) + "];\n";
      }
      for (int k = 0; k < s.results.count; ++k)
        maker[static_cast<std::size_t>(plan_.slots[static_cast<std::size_t>(s.results.begin + k)])] = static_cast<int>(i);
    }
    for (std::size_t k = 0; k < plan_.outputs.size(); ++k)
      t += "  out" + std::to_string(k) + " [shape=ellipse, peripheries=2, label=\"output " + std::to_string(k) + "\"];\n  " +
           from(plan_.outputs[k]) + " -> out" + std::to_string(k) + ";\n";
    return t + "}\n";
  }

  [[nodiscard, gnu::cold]] std::string json() const {
    std::string t = "{\"mesh\": " + quoted(named_sizes_text(mesh_).view()) + ",\n \"values\": [\n";
    for (std::size_t v = 0; v < plan_.values.size(); ++v) {
      const auto& x = plan_.values[v];
      t += "  {\"type\": " + quoted(name_of(x.type)) + ", \"shape\": " + list(x.global) + ", \"local_shape\": " + list(x.local) +
           ", \"sharding\": " + quoted(sharding_text(mesh_, x.layout, x.global.count).view()) + '}' +
           (v + 1 < plan_.values.size() ? ",\n" : "\n");
    }
    t += " ],\n \"inputs\": [";
    for (std::size_t k = 0; k < plan_.inputs.size(); ++k)
      t += (k > 0 ? ", " : "") + ("{\"name\": " + quoted(input_name(plan_.inputs[k]))) +
           ", \"value\": " + std::to_string(plan_.inputs[k]) + '}';
    t += "],\n \"outputs\": " + list(plan_.outputs) + ",\n \"steps\": [\n";
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const auto& s = plan_.steps[i];
      t += "  {\"what\": " + quoted(title(i)) + ", \"reads\": " + slots(s.operands) + ", \"makes\": " + slots(s.results);
      if (s.times != 1) t += ", \"times\": " + std::to_string(s.times);
      if (communicates(s))
        t += ", \"collective\": " + quoted(name_of(s.collective)) + ", \"axes\": " + quoted(axes_text(mesh_, s.axes).view()) +
             ", \"bytes\": " + std::to_string(s.bytes_sent);
      t += i + 1 < plan_.steps.size() ? "},\n" : "}\n";
    }
    return t + " ],\n \"bytes_sent_per_device\": " + std::to_string(count_traffic(plan_).bytes) +
           ",\n \"flops_per_device\": " + std::to_string(total_flops(plan_)) +
           ",\n \"peak_bytes_per_device\": " + std::to_string(peak_bytes(plan_)) + "\n}\n";
  }

 private:
  [[nodiscard, gnu::cold]] static std::string quoted(std::string_view text) {
    std::string t = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') t += '\\';
      if (static_cast<unsigned char>(c) >= ' ') t += c;
    }
    return t + '"';
  }
  template <class List>
  [[nodiscard]] static std::string list(const List& numbers) {
    std::string t = "[";
    for (const auto n : numbers) t += (t.size() > 1 ? ", " : "") + std::to_string(n);
    return t + ']';
  }
  [[nodiscard, gnu::cold]] std::string slots(const table_range& range) const {
    return list(plan_.slots.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.count)));
  }
  [[nodiscard, gnu::cold]] std::string input_name(int v) const {
    return std::string(graph::input_text(plan_.nodes[static_cast<std::size_t>(plan_.value(v).node)].at).view());
  }
  [[nodiscard, gnu::cold]] std::string value_text(int v) const {
    const auto& x = plan_.value(v);
    return std::string(name_of(x.type)) + ' ' + std::string(shape_text(x.local).view()) + ' ' +
           std::string(sharding_text(mesh_, x.layout, x.global.count).view());
  }
  [[nodiscard, gnu::cold]] std::string title(std::size_t step) const {
    const auto& s = plan_.steps[step];
    const auto& node = plan_.nodes[static_cast<std::size_t>(s.node)];
    if (communicates(s))
      return name_of(s.collective) + std::string(" over ") + std::string(axes_text(mesh_, s.axes).view()) + ", " +
             std::to_string(s.bytes_sent) + " bytes";
    std::string t;
    for (const auto& name : operators_[step]) t += (t.empty() ? "" : ", ") + name;
    if (t.empty()) t = std::string(facts_of(s).work == step_work::controls ? "" : "copy for ") + name_of(node.op);
    return t;
  }

  const plan_view& plan_;
  const mesh_info& mesh_;
  std::vector<std::vector<std::string>> operators_;  // by step
};

}  // namespace gspmd::detail
