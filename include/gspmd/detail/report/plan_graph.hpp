// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/report/svg_text.hpp"
#include "gspmd/plan/budget.hpp"

namespace gspmd::detail {

/// A device's program as a graph of the plan's steps and of the values between them, for Graphviz and as JSON.
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
    drawn_sources drawn(plan_);
    const auto draw_value = [&](int v, const std::string& look, const std::string& name) {
      t += "  v" + std::to_string(v) + " [shape=ellipse, " + look + "label=" + quoted(name + ": " + value_text(v)) + "];\n";
      drawn.add(v, 'v' + std::to_string(v));
    };
    for (const int v : plan_.inputs) draw_value(v, "fillcolor=\"#e6e6e6\", ", input_name(v));
    const auto from = [&](int v) {
      if (drawn.of(v).empty()) draw_value(v, "", name_of(plan_.nodes[static_cast<std::size_t>(plan_.value(v).node)].op));
      return drawn.of(v);
    };
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const auto& s = plan_.steps[i];
      const bool is_drawn = facts_of(s).work != step_work::controls;
      for (int k = 0; !is_drawn && k < s.results.count; ++k)
        drawn.add(plan_.slots[static_cast<std::size_t>(s.results.begin + k)], "");
      if (!is_drawn) continue;
      t += "  s" + std::to_string(i) + " [label=" + quoted(title(i));
      if (communicates(s)) t += std::string(", fillcolor=\"") + colour_of(static_cast<int>(s.collective)) + '"';
      t += "];\n";
      for (int k = 0; k < s.operands.count; ++k) {
        const int v = plan_.slots[static_cast<std::size_t>(s.operands.begin + k)];
        const auto source = from(v);
        t += "  " + source + " -> s" + std::to_string(i) + " [label=" + quoted(value_text(v)) + "];\n";
      }
      for (int k = 0; k < s.results.count; ++k)
        drawn.add(plan_.slots[static_cast<std::size_t>(s.results.begin + k)], 's' + std::to_string(i));
    }
    for (std::size_t k = 0; k < plan_.outputs.size(); ++k) {
      const auto source = from(plan_.outputs[k]);
      t += "  out" + std::to_string(k) + " [shape=ellipse, peripheries=2, label=\"output " + std::to_string(k) + "\"];\n  " +
           source + " -> out" + std::to_string(k) + ";\n";
    }
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
  /// The nodes of the drawn graph, by the values and the memory that they write. Some values have no step, for example
  /// reshapes, loop-carried values and rows of a block. They are found by their memory.
  class drawn_sources {
   public:
    explicit drawn_sources(const plan_view& plan) : plan_(plan), by_value_(plan.values.size()) {}

    /// Records that `node` writes value `v`. An empty `node` is a step that the graph does not draw.
    void add(int v, const std::string& node) {
      ++count_;
      for (; v >= 0; v = plan_.value(v).whole) {
        by_value_[static_cast<std::size_t>(v)] = node;
        for (const auto& place : places_of(v)) by_place_[place] = {count_, node};
      }
    }
    /// Returns the last node that writes `v`. Returns an empty text if `v` has no node, for example for the counter of
    /// a loop.
    [[nodiscard]] std::string of(int v) const {
      std::pair<int, std::string> last;
      for (; v >= 0; v = plan_.value(v).whole) {
        if (const auto& node = by_value_[static_cast<std::size_t>(v)]; !node.empty()) return node;
        for (const auto& place : places_of(v))
          if (const auto it = by_place_.find(place); it != by_place_.end()) last = std::max(last, it->second);
      }
      return last.second;
    }

   private:
    using memory = std::pair<memory_place::kind, std::int64_t>;
    [[nodiscard]] std::vector<memory> places_of(int v) const {
      const memory_place& m = plan_.value(v).where;
      std::vector<memory> places;
      if (m.where != memory_place::kind::none) places.emplace_back(m.where, m.at);
      if (m.takes_turns()) places.emplace_back(m.other, m.other_at);
      return places;
    }

    const plan_view& plan_;
    std::vector<std::string> by_value_;
    std::map<memory, std::pair<int, std::string>> by_place_;
    int count_ = 0;
  };

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
