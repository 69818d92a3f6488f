// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/report/cost_report.hpp"
#include "gspmd/detail/report/explain_plan.hpp"
#include "gspmd/dynamic/mesh.hpp"

namespace gspmd::dynamic {

/// Returns a time in the form of the reports: `1.250 ms`.
inline std::string time_text(double seconds) { return detail::cost_report::time_text(seconds); }

/// Inputs with the same annotation.
struct found_input {
  std::vector<int> inputs;  // their numbers
  std::string name;         // of the first input: `input 2 (w1)`
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;
  bool is_annotated = false;          // false: the planner's own choice is best
  std::vector<std::string> sharding;  // in the form of `dynamic::input`
  std::string otherwise;              // the next best annotation, and the time of the step with it; empty if no other was tried
};

/// An annotation of a value, and of the equal values in other layers.
struct found_value {
  std::string name;                   // of the first value: `einsum at mlp.cpp:12`
  std::vector<int> labels;            // of all values, if they have labels (builder::label)
  std::vector<std::string> sharding;  // in the form of `reshard`
  double seconds_without = 0;         // time of a step without this annotation
};

/// A plan that the search has compared.
struct compared_plan {
  std::string mesh;                       // `x=4, y=2`
  std::string name;                       // of the annotations: `all replicated`
  double seconds = 0, communication = 0;  // time of a step, and its part for communication
  std::int64_t bytes = 0;                 // sent by a device
  std::int64_t memory = 0;                // peak of a device
  bool fits = true;
};

/// The progress of a search.
struct search_progress {
  int plans = 0;       // made so far
  int most_plans = 0;  // budget
  std::string mesh;    // current mesh
};

/// The annotations that `find_annotations` found, and the plans that it compared.
struct found_annotations {
  dynamic::mesh mesh;
  std::vector<found_input> inputs;  // in the order of the program
  std::vector<found_value> values;
  std::vector<compared_plan> compared;  // the best plan first, then by time
  int plans = 0;                        // made by the search
  bool is_complete = false;             // no single further change helps; false: the budget ended the search

  /// Returns the lines for a program that is planned at run time: mesh, inputs, and reshards of values.
  [[nodiscard]] std::string run_time_lines() const {
    std::string t = "dynamic::mesh({";
    const char* comma = "";
    for (const auto& a : mesh.axes())
      t += std::string(std::exchange(comma, ", ")) + "{\"" + a.name + "\", " + std::to_string(a.size) + '}';
    t += "})\n";
    for (const auto& i : inputs)
      t += std::string("dynamic::input<") + detail::cpp_name_of(i.type) + ">({" + joined(i.shape) + '}' +
           (i.is_annotated ? ", {" + quoted(i.sharding, "\"\"") + '}' : "") + ')' + remark(i) + '\n';
    return t + value_lines();
  }
  /// Returns the same lines for `compile`.
  [[nodiscard]] std::string compiled_lines() const {
    std::string t = "mesh<";
    const char* comma = "";
    for (const auto& a : mesh.axes())
      t += std::string(std::exchange(comma, ", ")) + "axis<\"" + a.name + "\", " + std::to_string(a.size) + '>';
    t += ">\n";
    for (const auto& i : inputs)
      t += std::string("input<") + detail::cpp_name_of(i.type) + ", shape<" + joined(i.shape) + '>' +
           (i.is_annotated ? ", split<" + quoted(i.sharding, "_") + '>' : "") + '>' + remark(i) + '\n';
    return t + value_lines();
  }
  /// Returns a table of the compared plans, and the advantage of the best plan over the next.
  [[nodiscard]] std::string comparison() const {
    detail::text_table table;
    table.add({"", "time", "sending", "bytes sent", "bytes held", "mesh", "annotations"});
    for (const auto& c : compared)
      table.add({&c == &compared.front() ? ">" : "", time_text(c.seconds), time_text(c.communication), std::to_string(c.bytes),
                 std::to_string(c.memory) + (c.fits ? "" : ", too many"), c.mesh, c.name});
    return table.str() + reason() + std::to_string(plans) + (plans == 1 ? " plan was made" : " plans were made") +
           (is_complete ? "; no other annotation of one input, or of two along one axis, is better\n"
                        : "; the search ended there, and with more plans it may find a better annotation\n");
  }
  [[nodiscard]] std::string text() const { return run_time_lines() + '\n' + comparison(); }

 private:
  [[nodiscard]] static std::string joined(const std::vector<std::int64_t>& numbers) {
    std::string t;
    for (const auto n : numbers) t += (t.empty() ? "" : ", ") + std::to_string(n);
    return t;
  }
  [[nodiscard]] static std::string quoted(const std::vector<std::string>& dims, const char* none) {
    std::string t;
    for (const auto& d : dims) t += (t.empty() ? "" : ", ") + (d.empty() ? std::string(none) : '"' + d + '"');
    return t;
  }
  [[nodiscard]] static std::string remark(const found_input& i) {
    std::string t = "  // " + i.name;
    for (std::size_t k = 1; k < i.inputs.size(); ++k) t += (k == 1 ? ", and inputs " : ", ") + std::to_string(i.inputs[k]);
    if (!i.is_annotated) t += "; left to the planner";
    return t + (i.otherwise.empty() ? "" : "; " + i.otherwise);
  }
  [[nodiscard]] std::string value_lines() const {
    std::string t;
    for (const auto& v : values)
      t += "reshard<split<" + quoted(v.sharding, "_") + ">>(" + v.name + ")  // without it the step takes " +
           time_text(v.seconds_without) + '\n';
    return t;
  }
  /// Returns the reason why the first plan is the best, compared with the next plan that fits and takes longer.
  [[nodiscard]] std::string reason() const {
    const auto& best = compared.front();
    const auto change = [](const char* doing, double by) {
      return std::string(doing) + ' ' + time_text(by < 0 ? -by : by) + (by < 0 ? " more" : " less");
    };
    bool any_fits = false;
    for (const auto& c : compared) {
      any_fits = any_fits || (&c != &best && c.fits);
      if (&c == &best || !c.fits || c.seconds < best.seconds * 1.000001) continue;
      return "The best one spends " + change("sending", c.communication - best.communication) + " and " +
             change("computing", (c.seconds - c.communication) - (best.seconds - best.communication)) + " than `" + c.name +
             "` on " + c.mesh + ".\n";
    }
    if (compared.size() == 1) return "";
    return any_fits ? "None that fits takes longer; the best one sends least, then holds least.\n"
                    : "No other one fits into the memory of a device.\n";
  }
};

}  // namespace gspmd::dynamic
