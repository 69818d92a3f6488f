// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/ops/own/kept_functions.hpp"
#include "gspmd/detail/report/cost_report.hpp"
#include "gspmd/detail/support/planning_work.hpp"
#include "gspmd/report/inspect.hpp"
#include "gspmd/report/suggest_annotations.hpp"
#include "gspmd/search/detail/input_groups.hpp"
#include "gspmd/search/detail/input_layout.hpp"
#include "gspmd/search/detail/priced_plans.hpp"

namespace gspmd::detail {

using std::string_view_literals::operator""sv;

/// Searches annotations of values next to the most expensive collectives. The candidates are those of
/// `suggest_annotations`. It annotates all equal values together, for example in all layers of a network. An annotation
/// is kept if it makes the step at least 1% faster.
class value_search {
 public:
  struct found_value {
    std::string name;               // of the first value: `einsum at mlp.cpp:12`
    std::vector<int> labels;        // of all values
    std::vector<std::string> dims;  // in the notation of `split`
    plan_price before, after;
  };

  value_search(const dynamic::inspection& p, std::shared_ptr<const kept_functions> functions, const network& net,
               search_budget& budget)
      : mesh_(p.mesh()), functions_(std::move(functions)), net_(net), budget_(budget), graph_(p.graph()), plan_(p.program()) {
    for (const auto& n : graph_.nodes) {
      const int i = static_cast<int>(may_be_written_.size());
      may_be_written_.push_back(!n.in_gradient && !n.at.is_input() && (n.tag < 0 || p.node_of(n.tag) == i));
      for (const int o : n.operands)
        if (!n.in_gradient && at(o).at.line == n.at.line && at(o).at.file == n.at.file && name_of(at(o).op) != "einsum"sv)
          may_be_written_[static_cast<std::size_t>(o)] = false;
    }
  }

  [[nodiscard]] std::vector<found_value> run() {
    std::vector<found_value> found;
    if (graph_.states_communication()) return found;
    while (found.size() < most_values)
      if (auto one = next()) found.push_back(std::move(*one));
      else break;
    return found;
  }
  /// Returns the plan with all annotations that were found.
  [[nodiscard]] const dynamic::program& plan() const { return plan_; }

 private:
  using change = annotation_trials::change;
  static constexpr std::size_t most_values = 6, most_rows = 4;

  [[nodiscard]] const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }

  std::optional<found_value> next() {
    const auto now = price_of(plan_, net_);
    annotation_trials trials(graph_, plan_.view(), plan_.mesh_info(), plan_.mesh_info().request, net_);
    auto best = now;
    std::optional<change> by;
    std::optional<dynamic::program> plan;
    auto rows = cost_report(plan_.view(), plan_.mesh_info(), net_).dear_rows();
    if (rows.size() > most_rows) rows.resize(most_rows);
    std::vector<std::string> tried;
    for (const auto& row : rows)
      for (auto& c : trials.unwritten(*row.first)) {
        if (!may_be_written_[static_cast<std::size_t>(c.node)] || std::find(tried.begin(), tried.end(), c.text) != tried.end())
          continue;
        tried.push_back(c.text);
        if (!budget_.take()) continue;
        try {
          dynamic::program p(mesh_, with(c), functions_);
          const auto price = price_of(p, net_);
          if (!(price < best) || price.seconds() > now.seconds() * 0.99) continue;
          best = price;
          by = std::move(c);
          plan.emplace(std::move(p));
        } catch (const error&) {  // the program is refused, or does not fit
          if (planning_work::is_exceeded()) throw;
        }
      }
    if (!by) return {};
    const auto& n = at(by->node);
    found_value f{
        std::string(graph::place(n.at, name_of(n.op)).view()), {}, dims_of(mesh_.info(), by->lies, n.shape.count), now, best};
    for (const int i : alike(by->node))
      if (at(i).tag >= 0) f.labels.push_back(at(i).tag);
    graph_ = with(*by);
    plan_ = *plan;
    return f;
  }
  [[nodiscard]] graph with(const change& c) const {
    graph g = graph_;
    for (const int i : alike(c.node)) {
      node& n = g.nodes[static_cast<std::size_t>(i)];
      n.annotated = true;
      const axis_mask closed = n.annotation.closed;
      n.annotation = c.lies;
      n.annotation.closed = closed;
    }
    return g;
  }
  /// Returns the values that one source line annotates, or equal lines of equal layers. They have the same operator,
  /// type and shape, and the same line, or names that differ only in numbers.
  [[nodiscard]] std::vector<int> alike(int i) const {
    std::vector<int> found;
    for (int k = 0; k < static_cast<int>(graph_.nodes.size()); ++k)
      if (at(k).op == at(i).op && at(k).type == at(i).type && at(k).shape == at(i).shape && !at(k).annotated &&
          may_be_written_[static_cast<std::size_t>(k)] && line_of(k) == line_of(i))
        found.push_back(k);
    return found;
  }
  [[nodiscard]] std::string line_of(int i) const {
    const auto& n = at(i);
    std::string line = n.at.line > 0 ? std::string(n.at.file) + ':' + std::to_string(n.at.line)
                                     : std::string(name_pattern(n.at.file == nullptr ? "" : n.at.file).view());
    for (int s = n.scope; s >= 0; s = graph_.scopes[s].outer)
      line += '\n' + std::string(name_pattern(graph_.scopes[s].name).view());
    return line;
  }
  dynamic::mesh mesh_;
  std::shared_ptr<const kept_functions> functions_;
  const network& net_;
  search_budget& budget_;
  graph graph_;
  dynamic::program plan_;
  // For each node: true if a program can annotate its value. This excludes values of gradients, and intermediate values
  // of a function that adds several operators on one line.
  std::vector<bool> may_be_written_;
};

}  // namespace gspmd::detail
