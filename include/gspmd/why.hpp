// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/compile.hpp"
#include "gspmd/detail/passes/choose/plan_reasons.hpp"
#include "gspmd/detail/report/explain_plan.hpp"
#include "gspmd/inspect.hpp"

/// Why operators were split as they were: what else was looked at, and what it would have taken.
namespace gspmd {
namespace detail {

class why_text {
 public:
  /// `shape`: the mesh that the program was planned on.
  why_text(const graph& g, const mesh_info& mesh, const mesh_shape& shape) : graph_(g), mesh_(mesh), reasons_(g, shape) {}

  /// Of the value of node `i`, called `name`; empty if nothing was compared for it.
  [[nodiscard, gnu::cold]] std::string of(int i, const std::string& name) {
    while (facts_of(at(i).op).made == origin::renamed)
      i = at(i).operands[0];  // an annotation on a result is an identity after it
    if (at(i).op == opcode::result) i = at(i).operands[0];
    return ways(i, name) + others(i, name);
  }

 private:
  static constexpr std::size_t most_rows = 8;

  [[nodiscard]] const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[gnu::cold]] static std::string time_text(std::int64_t picoseconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f us", static_cast<double>(picoseconds) / 1e6);
    return text;
  }
  [[nodiscard, gnu::cold]] std::string lies(const sharding& s, int i) const {
    return std::string(sharding_text(mesh_, s, at(i).shape.count).view());
  }

  [[nodiscard, gnu::cold]] std::string ways(int i, const std::string& name) {
    auto tried = reasons_.ways(i);
    if (tried.empty()) return {};
    for (std::size_t k = 1; k < tried.size(); ++k)  // stable: of equal ones the first was taken
      for (std::size_t j = k; j > 0 && tried[j].price.is_less_than(tried[j - 1].price); --j) std::swap(tried[j - 1], tried[j]);
    text_table table;
    table.align_right(1);
    table.align_right(2);
    std::vector<std::string> seen;
    std::size_t shown = 0, left = 0;
    for (const auto& way : tried) {
      std::string what;
      for (int k = 0; k < way.use.wanted.count; ++k) what += (k > 0 ? ", " : "") + lies(way.use.wanted[k], at(i).operands[k]);
      what += " -> " + lies(way.use.result, i) + (way.use.moved ? ", as one movement" : "");
      bool is_new = true;
      for (const auto& s : seen) is_new = is_new && s != what;
      if (!is_new) continue;
      seen.push_back(what);
      const bool is_chosen = reasons_.is_chosen(i, way.use);
      if (shown >= most_rows && !is_chosen) {
        ++left;
        continue;
      }
      ++shown;
      if (way.price.refused > 0) what += ", which is not allowed";
      table.add({is_chosen ? ">" : " ", time_text(way.price.time), std::to_string(way.price.bytes), what});
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
      table.add({"  " + time_text(p.time), lies(p.lies, i), p.forced > 0 ? "gathers what an operator cannot keep split" : ""});
    return "the whole plan takes " + time_text(reasons_.time()) + "; if " + (name.empty() ? std::string("this") : name) +
           ", and what elementwise operators connect with it, were asked to lie so:\n" + table.str();
  }

  const graph& graph_;
  const mesh_info& mesh_;
  plan_reasons reasons_;
};

}  // namespace detail

/// Why the operator of a row of `explain<Step>()`, by its `#`, was split as it was: all ways to give the mesh's axes to its dims that were
/// compared, with the shardings of operands and result, the time they take on the mesh's network and the bytes they send, the cheapest
/// first, `>` before the one that was taken; and what the whole plan would take if its value lay as a neighbour would like it. Empty for
/// inputs and what else is no operator. Nothing is run; the program is planned again. Throws gspmd::error: there is no such row.
///
///     std::puts(why<step>(7).c_str());
template <class Step>
std::string why(int row) {
  const detail::graph g = Step::planned_graph();
  if (row < 0 || row >= static_cast<int>(g.nodes.size())) throw error("why: the program has no row " + std::to_string(row));
  return detail::why_text(g, Step::mesh_type::info, Step::planned_shape()).of(row, '#' + std::to_string(row));
}

namespace dynamic {

/// The same of a value with a label.
///
///     b.label(7);  ...  std::puts(why(inspection(b), 7).c_str());
inline std::string why(const inspection& plan, int label, const std::string& name = {}) {
  const int i = plan.node_of(label);
  if (i < 0) throw error("why: no output needs the value with the label " + std::to_string(label));
  return detail::why_text(plan.graph(), plan.program().mesh_info(), plan.planned_shape()).of(i, name);
}

}  // namespace dynamic
}  // namespace gspmd
