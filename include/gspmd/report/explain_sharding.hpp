// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/list/plan_reasons.hpp"
#include "gspmd/detail/report/explain_plan.hpp"
#include "gspmd/detail/report/text_table.hpp"
#include "gspmd/report/inspect.hpp"
#include "gspmd/run/compile.hpp"

/// Reports why operators were split as they were: the alternatives that the planner compared, and their times.
namespace gspmd {
namespace detail {

class why_text {
 public:
  /// `request`: the requests to the planner.
  why_text(const graph& g, const mesh_info& mesh, const plan_request& request)
      : graph_(g), mesh_(mesh), reasons_(g, mesh.shape, request) {}

  /// Returns the lines about the value of node `i`, called `name`. Returns an empty text if the planner compared
  /// nothing for it.
  [[nodiscard, gnu::cold]] std::string of(int i, const std::string& name) {
    i = operator_of(i);
    return ways(i, name) + others(i, name);
  }
  /// Returns a line for each of the cheapest ways to run the operator whose result is node `i`, and for the way that
  /// was chosen. Returns nothing if they were reported before.
  [[nodiscard, gnu::cold]] std::vector<std::string> cheapest(int i, std::size_t most) {
    i = operator_of(i);
    std::vector<std::string> text_lines;
    if (std::find(reported_.begin(), reported_.end(), i) != reported_.end()) return text_lines;
    reported_.push_back(i);
    const auto rows = tried(i);
    if (!rows.empty())
      text_lines.push_back("ways to run " + std::string(graph::place(at(i).at, name_of(at(i).op)).view()) +
                           ", by the time of operands, work, result and later readers:");
    for (std::size_t k = 0; k < rows.size(); ++k)
      if (k < most || rows[k].is_chosen)
        text_lines.push_back((rows[k].is_chosen ? "> " : "  ") + time_text(rows[k].time) + ", " + std::to_string(rows[k].bytes) +
                             " bytes: " + rows[k].text());
    return text_lines;
  }

 private:
  static constexpr std::size_t most_rows = 8;
  struct way {
    bool is_chosen = false;
    std::int64_t time = 0, bytes = 0;
    std::string what;
    bool is_allowed = true;
    [[nodiscard]] std::string text() const { return is_allowed ? what : what + ", which is not allowed"; }
  };

  [[nodiscard]] const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  /// Returns the operator of a value. An annotation on a result is an identity node after the operator.
  [[nodiscard]] int operator_of(int i) const {
    while (facts_of(at(i).op).made == origin::renamed) i = at(i).operands[0];
    return at(i).op == opcode::result ? at(i).operands[0] : i;
  }
  [[gnu::cold]] static std::string time_text(std::int64_t picoseconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f us", static_cast<double>(picoseconds) / 1e6);
    return text;
  }
  [[nodiscard, gnu::cold]] std::string lies(const sharding& s, int i) const {
    return std::string(sharding_text(mesh_, s, at(i).shape.count).view());
  }

  /// Returns the ways to run an operator, cheapest first. Ways with equal costs are in the order of the trials.
  [[nodiscard, gnu::cold]] std::vector<way> tried(int i) {
    auto found = reasons_.ways(i);
    for (std::size_t k = 1; k < found.size(); ++k)
      for (std::size_t j = k; j > 0 && found[j].price.is_less_than(found[j - 1].price); --j) std::swap(found[j - 1], found[j]);
    std::vector<way> rows;
    for (const auto& f : found) {
      std::string what;
      for (int k = 0; k < f.use.wanted.count; ++k) what += (k > 0 ? ", " : "") + lies(f.use.wanted[k], at(i).operands[k]);
      what += " -> " + lies(f.use.result, i) + (f.use.moved ? ", as one movement" : "");
      bool is_new = true;
      for (const auto& r : rows) is_new = is_new && r.what != what;
      if (is_new)
        rows.push_back({reasons_.is_chosen(i, f.use), f.price.time, f.price.bytes, std::move(what), f.price.refused == 0});
    }
    return rows;
  }
  [[nodiscard, gnu::cold]] std::string ways(int i, const std::string& name) {
    const auto rows = tried(i);
    if (rows.empty()) return {};
    text_table table;
    table.align_right(1);
    table.align_right(2);
    std::size_t shown = 0, left = 0;
    for (const auto& r : rows) {
      if (shown >= most_rows && !r.is_chosen) {
        ++left;
        continue;
      }
      ++shown;
      table.add({r.is_chosen ? ">" : " ", time_text(r.time), std::to_string(r.bytes), r.text()});
    }
    std::string t = std::string("ways to run ") + name_of(at(i).op) + (name.empty() ? "" : " ") + name +
                    ", by the time and the bytes of operands, work, result and later readers:\n" + table.str();
    if (left > 0) t += "and " + std::to_string(left) + " more, which take longer\n";
    return t;
  }

  [[nodiscard, gnu::cold]] std::string others(int i, const std::string& name) {
    const auto plans = reasons_.others(i);
    if (plans.empty()) return {};
    text_table table;
    table.align_right(0);
    for (const auto& p : plans)
      table.add({"  " + time_text(p.time), lies(p.lies, i), p.forced > 0 ? "gathers a split that an operator cannot keep" : ""});
    return "the whole plan takes " + time_text(reasons_.time()) + "; if " + (name.empty() ? std::string("this") : name) +
           ", and the values that elementwise operators connect with it, had this sharding:\n" + table.str();
  }

  const graph& graph_;
  const mesh_info& mesh_;
  plan_reasons reasons_;
  std::vector<int> reported_;  // operators that `cheapest` has reported
};

}  // namespace detail

/// Returns the reason why the operator of a row of `explain<Step>()` was split as it was; `row` is its `#`.
///
/// The text has all ways that the planner compared to assign the mesh's axes to the dims of the operator. Each way has
/// the shardings of operands and result, the time on the mesh's network and the bytes sent. The cheapest way is first,
/// and `>` marks the way that was chosen. The text also has the time of the whole plan for each sharding of the value
/// that a neighbour prefers. The text is empty for inputs and for rows that are not operators. The program does not
/// run; it is planned again.
///
/// **Errors.** gspmd::error if the row does not exist.
/// **Example.**
///
///     std::puts(explain_sharding<step>(7).c_str());
template <class Step>
std::string explain_sharding(int row) {
  const detail::graph g = Step::planned_graph();
  if (row < 0 || row >= static_cast<int>(g.nodes.size()))
    throw error("explain_sharding: the program has no row " + std::to_string(row));
  return detail::why_text(g, Step::mesh_type::info, Step::request()).of(row, '#' + std::to_string(row));
}

namespace dynamic {

/// The same for a value with a label.
///
/// **Errors.** gspmd::error if no output needs the value.
/// **Example.**
///
///     b.label(7);  ...  std::puts(explain_sharding(inspection(b), 7).c_str());
inline std::string explain_sharding(const inspection& plan, int label, const std::string& name = {}) {
  const int i = plan.node_of(label);
  if (i < 0) throw error("explain_sharding: no output needs the value with the label " + std::to_string(label));
  return detail::why_text(plan.graph(), plan.program().mesh_info(), plan.request()).of(i, name);
}

}  // namespace dynamic
}  // namespace gspmd
