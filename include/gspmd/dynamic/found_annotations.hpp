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

/// A time as reports write it: `1.250 ms`.
inline std::string time_text(double seconds) { return detail::cost_report::time_text(seconds); }

/// Inputs that get one annotation.
struct found_input {
  std::vector<int> inputs;  // their numbers
  std::string name;         // of the first, `input 2 (w1)`
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;
  bool is_annotated = false;          // false: is best left to the planner
  std::vector<std::string> sharding;  // as `dynamic::in` takes it
  std::string otherwise;              // the next best annotation, and the time of the step with it; empty: none was tried
};

/// An annotation of a value, and of those that are alike in other layers.
struct found_value {
  std::string name;                   // of the first: `einsum at mlp.cpp:12`
  std::vector<int> labels;            // of all, if they have labels (builder::label)
  std::vector<std::string> sharding;  // as `reshard` takes it
  double seconds_without = 0;         // of a step without it
};

/// A plan that was looked at.
struct compared_plan {
  std::string mesh;                       // `x=4, y=2`
  std::string name;                       // of the annotations: `all replicated`
  double seconds = 0, communication = 0;  // of a step, and of these what is sent
  std::int64_t bytes = 0;                 // that a device sends
  std::int64_t memory = 0;                // that it holds
  bool fits = true;
};

/// How far a search is.
struct search_progress {
  int plans = 0;       // made
  int most_plans = 0;  // that may be made
  std::string mesh;    // on which it searches
};

/// The annotations that `find_annotations` found, and what it compared.
struct found_annotations {
  dynamic::mesh mesh;
  std::vector<found_input> inputs;  // in the order of the program
  std::vector<found_value> values;
  std::vector<compared_plan> compared;  // the best one first, then by time
  int plans = 0;                        // that were made
  bool is_complete = false;             // no single change that was left to try would have helped; else the budget ended it

  /// The lines to write in a program that is planned at run time: mesh, inputs, and reshards of values.
  [[nodiscard]] std::string run_time_lines() const {
    std::string t = "dynamic::mesh({";
    const char* comma = "";
    for (const auto& a : mesh.axes())
      t += std::string(std::exchange(comma, ", ")) + "{\"" + a.name + "\", " + std::to_string(a.size) + '}';
    t += "})\n";
    for (const auto& i : inputs)
      t += std::string("dynamic::in<") + detail::cpp_name_of(i.type) + ">({" + joined(i.shape) + '}' +
           (i.is_annotated ? ", {" + quoted(i.sharding, "\"\"") + '}' : "") + ')' + remark(i) + '\n';
    return t + value_lines();
  }
  /// The same for `compile`.
  [[nodiscard]] std::string compiled_lines() const {
    std::string t = "mesh<";
    const char* comma = "";
    for (const auto& a : mesh.axes())
      t += std::string(std::exchange(comma, ", ")) + "axis<\"" + a.name + "\", " + std::to_string(a.size) + '>';
    t += ">\n";
    for (const auto& i : inputs)
      t += std::string("in<") + detail::cpp_name_of(i.type) + ", dims<" + joined(i.shape) + '>' +
           (i.is_annotated ? ", split<" + quoted(i.sharding, "_") + '>' : "") + '>' + remark(i) + '\n';
    return t + value_lines();
  }
  /// The plans that were compared, as a table, and what the best one has before the next.
  [[nodiscard]] std::string comparison() const {
    detail::text_table table;
    table.add({"", "time", "sending", "bytes sent", "bytes held", "mesh", "annotations"});
    for (const auto& c : compared)
      table.add({&c == &compared.front() ? ">" : "", time_text(c.seconds), time_text(c.communication), std::to_string(c.bytes),
                 std::to_string(c.memory) + (c.fits ? "" : ", too many"), c.mesh, c.name});
    return table.str() + reason() + std::to_string(plans) + (plans == 1 ? " plan was made" : " plans were made") +
           (is_complete ? "; no other annotation of one input, or of two along one axis, is better\n"
                        : "; the search ended there, and more of them may find a better one\n");
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
  /// Why the first is the best: against the next one that fits and takes longer.
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
