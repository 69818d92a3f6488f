// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/detail/report/explain_plan.hpp"
#include "gspmd/detail/report/svg_text.hpp"
#include "gspmd/network.hpp"

namespace gspmd::detail {

/// What the steps of a plan cost on a network, in the forms that report.hpp documents. Reads the tables of the plan only.
class cost_report {
 public:
  cost_report(const plan_view& plan, const mesh_info& mesh, const network& net)
      : plan_(plan), mesh_(mesh), rates_(rates_on(net, mesh)), flops_per_second_(net.flops_per_second()) {}

  /// Collectives that are told alike: of one kind over the same axes.
  struct sum {
    std::int64_t count = 0;
    std::int64_t bytes = 0;
    double seconds = 0;
  };
  [[nodiscard, gnu::cold]] std::map<std::string, sum> by_kind_and_axes() const {
    std::map<std::string, sum> found;
    for (const auto& s : plan_.steps) {
      if (!communicates(plan_, s)) continue;
      auto& all = found[std::string(name_of(s.collective)) + " over " + axes_of_step(s)];
      all.count += s.times;
      all.bytes += s.bytes_sent * s.times;
      all.seconds += seconds(s);
    }
    return found;
  }
  /// Rows of what `summary` and `compare` end with.
  [[nodiscard, gnu::cold]] std::vector<std::pair<std::string, std::string>> totals() const {
    sum all;
    for (const auto& [name, one] : by_kind_and_axes()) {
      all.count += one.count;
      all.bytes += one.bytes;
      all.seconds += one.seconds;
    }
    return {{"computing", time_text(static_cast<double>(total_flops(plan_)) / flops_per_second_)},
            {"flops", std::to_string(total_flops(plan_))},
            {"communication", time_text(all.seconds)},
            {"collectives", std::to_string(all.count)},
            {"bytes sent", std::to_string(all.bytes)},
            {"bytes held", std::to_string(peak_bytes(plan_))}};
  }

  /// Collectives that are told alike: equal ones, the layers of a network.
  struct dear_row {
    double seconds = 0;
    std::int64_t count = 0;
    std::vector<std::string> cells;
    const plan_step* first = nullptr;
  };
  /// The dearest first.
  [[nodiscard, gnu::cold]] std::vector<dear_row> dear_rows() const {
    std::map<std::vector<std::string>, dear_row> rows;
    for (const auto& s : plan_.steps) {
      if (!communicates(plan_, s)) continue;
      std::vector<std::string> cells{name_of(s.collective), axes_of_step(s), std::to_string(s.bytes_sent), operator_of(s),
                                     line_of(s)};
      auto& r = rows[cells];
      r.cells = std::move(cells);
      r.seconds += seconds(s);
      r.count += s.times;
      if (r.first == nullptr) r.first = &s;
    }
    std::vector<dear_row> list;
    for (auto& [cells, r] : rows) list.push_back(std::move(r));
    std::sort(list.begin(), list.end(), [](const dear_row& a, const dear_row& b) {
      return a.seconds != b.seconds ? a.seconds > b.seconds : a.cells < b.cells;
    });
    return list;
  }
  /// `remarks(step)` stand under each, indented.
  template <class Remarks>
  [[nodiscard, gnu::cold]] std::string dearest(std::size_t most, Remarks remarks) const {
    const auto list = dear_rows();
    text_table table;
    table.align_right(0);
    table.align_right(1);
    table.align_right(4);
    table.add({"time", "times", "collective", "over", "bytes each", "for", "line"});
    for (std::size_t k = 0; k < list.size() && k < most; ++k) {
      const auto& r = list[k];
      table.add({time_text(r.seconds), std::to_string(r.count), r.cells[0], r.cells[1], r.cells[2], r.cells[3], r.cells[4]});
      for (const std::string& remark : remarks(*r.first)) table.add({"     " + remark});
    }
    if (list.size() > most) table.add({"and " + std::to_string(list.size() - most) + " more kinds"});
    return table.str();
  }
  [[nodiscard, gnu::cold]] std::string dearest(std::size_t most) const {
    return dearest(most, [](const plan_step&) { return std::vector<std::string>(); });
  }

  [[nodiscard, gnu::cold]] std::string summary() const {
    std::map<std::string, std::pair<std::int64_t, std::int64_t>> kinds;  // how many, flops
    for (const auto& n : plan_.nodes) {
      if (n.value < 0 || facts_of(n.op).made != origin::shards) continue;
      auto& [count, flops] = kinds[name_of(n.op)];
      ++count;
      flops += n.flops;
    }
    text_table table;
    for (const std::size_t column : {1U, 2U, 3U}) table.align_right(column);
    table.add({"operator", "number", "flops", ""});
    for (const auto& [name, all] : kinds) table.add({name, std::to_string(all.first), std::to_string(all.second), ""});
    table.add({"\ncollective", "number", "bytes", "time"});
    for (const auto& [name, all] : by_kind_and_axes())
      table.add({name, std::to_string(all.count), std::to_string(all.bytes), time_text(all.seconds)});
    table.add({""});
    for (const auto& [name, number] : totals()) table.add({name, number, "", ""});
    return table.str();
  }

  /// What became of an operator: how its value lies, and what is sent for it. Two plans are compared by the operator's name, its line and
  /// the how manieth of its line it is.
  struct operator_row {
    std::string name, line;
    int which = 0;
    std::string told;
  };
  [[nodiscard, gnu::cold]] std::vector<operator_row> rows_by_operator() const {
    std::vector<std::int64_t> sent(plan_.nodes.size(), 0);
    for (const auto& s : plan_.steps)
      if (communicates(plan_, s)) sent[static_cast<std::size_t>(s.node)] += s.bytes_sent * s.times;
    std::map<std::pair<std::string, std::string>, int> seen;
    std::vector<operator_row> rows;
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const auto& n = plan_.nodes[i];
      if (n.value < 0) continue;
      const auto& v = plan_.value(n.value);
      operator_row row{name_of(n.op), line_of(n.at), 0, std::string(sharding_text(mesh_, v.layout, v.global.count).view())};
      if (sent[i] > 0) row.told += ", sends " + std::to_string(sent[i]) + (sent[i] == 1 ? " byte" : " bytes");
      row.which = seen[{row.name, row.line}]++;
      rows.push_back(std::move(row));
    }
    return rows;
  }

  /// Something that takes time: the computing of a step, or what it sends along one axis. They follow each other.
  struct event {
    const plan_step* step = nullptr;
    int axis = -1;         // -1: computing
    bool goes_on = false;  // along another axis than the event before
    double begin = 0, seconds = 0;
    std::int64_t flops = 0;
  };
  [[nodiscard, gnu::cold]] std::vector<event> events() const {
    std::vector<std::int64_t> flops(plan_.steps.size(), 0);
    std::int64_t read_along = 0;  // of operators that are part of the step of a later one
    for (const auto& n : plan_.nodes) {
      if (n.value < 0) continue;
      const int step = plan_.value(n.value).step;
      read_along += n.flops;
      if (step < 0) continue;
      flops[static_cast<std::size_t>(step)] += read_along;
      read_along = 0;
    }
    std::vector<event> all;
    double now = 0;
    const auto add = [&](event e) {
      e.begin = now;
      now += e.seconds;
      all.push_back(e);
    };
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const auto& s = plan_.steps[i];
      if (flops[i] > 0) add({&s, -1, false, 0, static_cast<double>(flops[i]) / flops_per_second_, flops[i]});
      if (!communicates(plan_, s)) continue;
      const auto times = step_times(rates_, plan_, mesh_.shape, s);
      bool goes_on = false;
      for (int a = 0; a < times.count; ++a) {  // axis by axis, as they are priced
        if (times[a] == 0) continue;
        add({&s, a, goes_on, 0, seconds_of(times[a]) * static_cast<double>(s.times), 0});
        goes_on = true;
      }
    }
    return all;
  }

  [[nodiscard, gnu::cold]] std::string timeline() const {
    std::string t = "{\"traceEvents\": [";
    const auto track = [&](int number, std::string_view name) {
      t += "{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": " + std::to_string(number) +
           R"(, "args": {"name": ")" + std::string(name) + "\"}},\n";
    };
    track(0, "compute");
    for (int a = 0; a < mesh_.shape.axis_count(); ++a) track(1 + a, "axis " + std::string(mesh_.name(a)));
    for (const auto& e : events()) {
      const auto& s = *e.step;
      char times[80];  // in microseconds
      std::snprintf(times, sizeof times, "\"ts\": %.6f, \"dur\": %.6f", e.begin * 1e6, e.seconds * 1e6);
      t += "{\"name\": \"" + name_of_event(e) + "\", \"ph\": \"X\", \"pid\": 0, \"tid\": " + std::to_string(1 + e.axis) + ", " +
           times + ", \"args\": {\"line\": \"" + json_text(line_of(s)) + "\", \"bytes\": " + std::to_string(s.bytes_sent) +
           ", \"times\": " + std::to_string(s.times) + "}},\n";
    }
    t.erase(t.find_last_of('}') + 1);
    return t + "]}\n";
  }

  /// The same as a picture. What is narrower than half a pixel is drawn together with what follows it on its track.
  [[nodiscard, gnu::cold]] std::string timeline_svg() const {
    constexpr int left = 90, width = 1000, track_height = 26, top = 24;
    const auto all = events();
    const double end = all.empty() ? 0 : all.back().begin + all.back().seconds, scale = end > 0 ? width / end : 0;
    const int tracks = 1 + mesh_.shape.axis_count();
    std::string t;
    for (int k = 0; k < tracks; ++k)
      t += words(8, top + k * track_height + 16, k == 0 ? "compute" : std::string(mesh_.name(k - 1)), true);
    for (int k = 0; k <= 4; ++k) t += words(left + k * width / 4, 14, time_text(end * k / 4), false);
    struct drawn {
      double begin = 0, end = 0;
      std::int64_t count = 0;
      const event* first = nullptr;
    };
    std::vector<drawn> open(static_cast<std::size_t>(tracks));
    const auto draw = [&](drawn& d) {
      if (d.first == nullptr) return;
      const auto& e = *d.first;
      const auto told = d.count > 1 ? std::to_string(d.count) + " events"
                                    : name_of_event(e) + ", " + line_of(*e.step) + ", " + time_text(e.seconds) +
                                          (e.axis < 0 ? std::string() : ", " + std::to_string(e.step->bytes_sent) + " bytes");
      t += box(left + d.begin * scale, top + (1 + e.axis) * track_height, (d.end - d.begin) * scale, track_height - 6,
               e.axis < 0 ? "#9fc99f" : colour_of(static_cast<int>(e.step->collective)), told);
      d = {};
    };
    for (const auto& e : all) {
      auto& d = open[static_cast<std::size_t>(1 + e.axis)];
      const bool is_near =
          d.first != nullptr && (e.begin - d.end) * scale < 0.5 && ((d.end - d.begin) * scale < 0.5 || e.seconds * scale < 0.5);
      if (!is_near) draw(d);
      if (d.first == nullptr) d = {e.begin, e.begin, 0, &e};
      d.end = e.begin + e.seconds;
      ++d.count;
    }
    for (auto& d : open) draw(d);
    return svg_file(left + width + 70, top + tracks * track_height + 8, t);
  }

  [[nodiscard, gnu::cold]] std::string axes_of_step(const plan_step& s) const {
    return std::string(axes_text(mesh_, axes_of(plan_, s)).view());
  }
  [[nodiscard]] const planned_node& node_of(const plan_step& s) const { return plan_.nodes[static_cast<std::size_t>(s.node)]; }
  [[nodiscard, gnu::cold]] std::string operator_of(const plan_step& s) const { return name_of(node_of(s).op); }
  [[nodiscard]] static std::string time_text(double seconds) {
    char text[32];
    const char* const unit = seconds >= 1 ? "s" : seconds >= 1e-3 ? "ms" : "us";
    std::snprintf(text, sizeof text, "%.3f %s", seconds * (seconds >= 1 ? 1 : seconds >= 1e-3 ? 1e3 : 1e6), unit);
    return text;
  }

 private:
  /// In one run of the program.
  [[nodiscard]] double seconds(const plan_step& s) const {
    double all = 0;
    for (const auto t : step_times(rates_, plan_, mesh_.shape, s)) all += seconds_of(t);
    return all * static_cast<double>(s.times);
  }
  [[nodiscard, gnu::cold]] std::string line_of(const plan_step& s) const { return line_of(node_of(s).at); }
  [[nodiscard, gnu::cold]] static std::string line_of(const location& at) {
    if (at.is_input()) return std::string(graph::input_text(at).view());
    return std::string(graph::base_name(at.file)) + (at.line > 0 ? ':' + std::to_string(at.line) : std::string());
  }
  [[nodiscard, gnu::cold]] std::string name_of_event(const event& e) const {
    return e.axis < 0 ? operator_of(*e.step) : name_of(e.step->collective) + std::string(" for ") + operator_of(*e.step);
  }
  /// Names of files may have what JSON has not.
  [[nodiscard, gnu::cold]] static std::string json_text(const std::string& text) {
    std::string t;
    for (const char c : text) {
      if (c == '"' || c == '\\') t += '\\';
      if (static_cast<unsigned char>(c) >= ' ') t += c;
    }
    return t;
  }

  const plan_view& plan_;
  const mesh_info& mesh_;
  network_rates rates_;
  double flops_per_second_;
};

/// Two plans side by side: collectives by kind, totals, and the operators that are split otherwise or send something else.
[[gnu::cold]] inline std::string compare_costs(const cost_report& a, const cost_report& b) {
  const auto first = a.by_kind_and_axes(), second = b.by_kind_and_axes();
  auto names = first;
  names.insert(second.begin(), second.end());
  const auto told = [](const std::map<std::string, cost_report::sum>& all, const std::string& name) -> std::string {
    const auto it = all.find(name);
    if (it == all.end()) return "-";
    return std::to_string(it->second.count) + ": " + std::to_string(it->second.bytes) + " bytes, " +
           cost_report::time_text(it->second.seconds);
  };
  text_table table;
  table.align_right(1);
  table.align_right(2);
  table.add({"", "first", "second", ""});
  const auto add = [&](const std::string& name, const std::string& x, const std::string& y) {
    table.add({name, x, y, x == y ? "=" : ""});
  };
  for (const auto& [name, all] : names) add(name, told(first, name), told(second, name));
  table.add({""});
  const auto total_a = a.totals(), total_b = b.totals();
  for (std::size_t k = 0; k < total_a.size(); ++k) add(total_a[k].first, total_a[k].second, total_b[k].second);

  using key = std::tuple<std::string, std::string, int>;
  const auto rows_a = a.rows_by_operator(), rows_b = b.rows_by_operator();
  std::map<key, std::string> of_a, of_b;
  for (const auto& r : rows_a) of_a[{r.name, r.line, r.which}] = r.told;
  for (const auto& r : rows_b) of_b[{r.name, r.line, r.which}] = r.told;
  constexpr std::size_t most_rows = 60;
  text_table differing;
  differing.add({"operator", "line", "first", "second"});
  std::size_t count = 0, equal = 0;
  const auto add_row = [&](const cost_report::operator_row& r, const std::string& x, const std::string& y) {
    if (x == y) ++equal;
    else if (++count <= most_rows) differing.add({r.name, r.line, x, y});
  };
  const auto find = [](const std::map<key, std::string>& all, const cost_report::operator_row& r) -> std::string {
    const auto it = all.find({r.name, r.line, r.which});
    return it == all.end() ? "-" : it->second;
  };
  for (const auto& r : rows_a) add_row(r, r.told, find(of_b, r));
  for (const auto& r : rows_b)
    if (find(of_a, r) == "-") add_row(r, "-", r.told);
  if (count > most_rows) differing.add({"and " + std::to_string(count - most_rows) + " more"});
  return table.str() + '\n' + (count > 0 ? differing.str() : "") + std::to_string(equal) +
         (equal == 1 ? " operator is" : " operators are") + " alike in both\n";
}

}  // namespace gspmd::detail
