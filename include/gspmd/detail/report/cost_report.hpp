// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/report/explain_plan.hpp"
#include "gspmd/detail/report/numbers.hpp"
#include "gspmd/detail/report/scope_names.hpp"
#include "gspmd/detail/report/svg_text.hpp"
#include "gspmd/detail/report/text_table.hpp"
#include "gspmd/report/network.hpp"

namespace gspmd::detail {

/// Returns the begin and the duration of an event in a viewer's format, in microseconds.
[[gnu::cold]] inline std::string span_text(double begin, double seconds) {
  char text[80];
  std::snprintf(text, sizeof text, "\"ts\": %.6f, \"dur\": %.6f", begin * 1e6, seconds * 1e6);
  return text;
}
/// Escapes text for JSON and drops control characters, which file names may contain.
[[gnu::cold]] inline std::string escaped_json(const std::string& text) {
  std::string t;
  for (const char c : text) {
    if (c == '"' || c == '\\') t += '\\';
    if (static_cast<unsigned char>(c) >= ' ') t += c;
  }
  return t;
}

/// The cost of the steps of a plan on a network, in the forms that report.hpp documents. It reads only the tables of
/// the plan.
class cost_report {
 public:
  /// `scope` restricts the report to a part of the program; see scope_names.
  cost_report(const plan_view& plan, const mesh_info& mesh, const network& net, std::string_view scope = {},
              number_form form = number_form::rounded)
      : plan_(plan), mesh_(mesh), rates_(rates_on(net, mesh)), scopes_(plan, scope), format_{form} {}

  [[nodiscard]] const number_format& format() const { return format_; }

  /// The collectives of a row: the same kind over the same axes.
  struct sum {
    std::int64_t count = 0;
    std::int64_t bytes = 0;
    double seconds = 0;
  };
  [[nodiscard, gnu::cold]] std::map<std::string, sum> by_kind_and_axes() const {
    std::map<std::string, sum> found;
    for (const auto& s : plan_.steps) {
      if (!is_sent(s)) continue;
      auto& all = found[std::string(name_of(s.collective)) + " over " + axes_of_step(s)];
      all.count += s.times;
      all.bytes += s.bytes_sent * s.times;
      all.seconds += seconds(s);
    }
    return found;
  }
  /// Returns the last rows of `summary` and `compare`.
  [[nodiscard, gnu::cold]] std::vector<std::pair<std::string, std::string>> totals() const {
    sum all;
    for (const auto& [name, one] : by_kind_and_axes()) {
      all.count += one.count;
      all.bytes += one.bytes;
      all.seconds += one.seconds;
    }
    std::int64_t flops = scopes_.shows_all() ? total_flops(plan_) : 0;  // of a conditional, only the more expensive body counts
    double computing = 0;
    if (scopes_.shows_all())
      computing = detail::seconds_of(total_of_nodes(plan_, [&](const planned_node& n) { return rates_.time_of(n.work); }));
    for (std::size_t i = 0; i < plan_.nodes.size() && !scopes_.shows_all(); ++i) {
      if (!scopes_.is_shown(static_cast<int>(i))) continue;
      flops = saturating_add(flops, plan_.nodes[i].flops);
      computing += seconds(plan_.nodes[i]);
    }
    std::vector<std::pair<std::string, std::string>> rows{{"computation", format_.time(computing)},
                                                          {"flops", format_.flops(flops)},
                                                          {"communication", format_.time(all.seconds)},
                                                          {"collectives", std::to_string(all.count)},
                                                          {"bytes sent", format_.bytes(all.bytes)}};
    if (scopes_.shows_all()) rows.emplace_back("bytes held", format_.bytes(peak_bytes(plan_)));
    return rows;
  }

  /// The collectives of a row: equal collectives, as in the layers of a network. Equal collectives have the same kind,
  /// axes, operator, shape, bytes and line. If there is no line, the collective's number among such collectives in one
  /// call of its scope takes its place. If there is no scope either, the name of the value without digits does.
  struct dear_row {
    double seconds = 0;
    std::int64_t count = 0;
    std::vector<std::string> cells;
    const plan_step* first = nullptr;
  };
  /// Returns all rows, the most expensive row first.
  [[nodiscard, gnu::cold]] std::vector<dear_row> dear_rows() const {
    std::map<std::vector<std::string>, dear_row> rows;
    std::map<std::pair<int, std::vector<std::string>>, int> count_in;  // by scope and key
    for (const auto& s : plan_.steps) {
      if (!is_sent(s)) continue;
      const auto& at = node_of(s).at;
      const int scope = scopes_.scope_of(s);
      std::vector<std::string> cells{name_of(s.collective), axes_of_step(s), std::to_string(s.bytes_sent),
                                     operator_of(s),        line_of(s),      scopes_.name(scope)};
      std::vector<std::string> key = cells;
      key.emplace_back(s.operands.count > 0 ? shape_text(plan_.operand(s, 0).global).view() : std::string_view());
      std::string& place = key[4];
      if (has_no_line(at)) place = scope < 0 ? place_of(at) : "";
      if (place.empty()) place = std::to_string(count_in[{scope, key}]++);
      auto& r = rows[std::move(key)];
      if (r.first == nullptr) r = {0, 0, std::move(cells), &s};
      r.seconds += seconds(s);
      r.count += s.times;
    }
    std::vector<dear_row> list;
    for (auto& [cells, r] : rows) list.push_back(std::move(r));
    std::sort(list.begin(), list.end(), [](const dear_row& a, const dear_row& b) {
      return a.seconds != b.seconds ? a.seconds > b.seconds : a.cells < b.cells;
    });
    return list;
  }
  /// Returns the table of the `most` most expensive rows. `remarks(step)` are printed under each row, indented.
  template <class Remarks>
  [[nodiscard, gnu::cold]] std::string most_expensive(std::size_t most, Remarks remarks) const {
    const auto list = dear_rows();
    text_table table;
    table.align_right(0);
    table.align_right(1);
    table.align_right(4);
    table.add({"time", "times", "collective", "over", "bytes each", "for", "line", scopes_.empty() ? "" : "scope"});
    for (std::size_t k = 0; k < list.size() && k < most; ++k) {
      const auto& r = list[k];
      std::vector<std::string> cells{format_.time(r.seconds), std::to_string(r.count)};
      cells.insert(cells.end(), r.cells.begin(), r.cells.end());
      cells[4] = format_.bytes(r.first->bytes_sent);
      table.add(std::move(cells));
      for (const std::string& remark : remarks(*r.first)) table.add({"     " + remark});
    }
    if (list.size() > most) table.add({"and " + std::to_string(list.size() - most) + " more kinds"});
    return table.str();
  }
  [[nodiscard, gnu::cold]] std::string most_expensive(std::size_t most) const {
    return most_expensive(most, [](const plan_step&) { return std::vector<std::string>(); });
  }

  /// Returns at most 40 lines: the operators, collectives and scopes with their totals. Each list has the most
  /// expensive entries and the number of further entries.
  [[nodiscard, gnu::cold]] std::string summary() const {
    struct kind {
      std::string name;
      std::int64_t count = 0, flops = 0, bytes = 0;
      double seconds = 0;
    };
    using kinds = std::map<std::string, kind>;
    kinds computed, sent, in_scopes;
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const auto& n = plan_.nodes[i];
      if (!scopes_.is_shown(static_cast<int>(i))) continue;
      for (const int s : scopes_.around(n.scope)) {
        in_scopes[scopes_.name(s)].flops += n.flops;
        in_scopes[scopes_.name(s)].seconds += seconds(n);
      }
      if (n.value < 0 || words_of(n.op).made != origin::shards) continue;
      auto& all = computed[name_of(n.op)];
      ++all.count;
      all.flops += n.flops;
    }
    for (const auto& [name, all] : by_kind_and_axes()) sent[name] = {{}, all.count, 0, all.bytes, all.seconds};
    for (const auto& s : plan_.steps)
      for (const int scope : scopes_.around(is_sent(s) ? scopes_.scope_of(s) : -1)) {
        auto& all = in_scopes[scopes_.name(scope)];
        all.bytes += s.bytes_sent * s.times;
        all.seconds += seconds(s);
      }

    text_table table;
    for (const std::size_t column : {1U, 2U, 3U}) table.align_right(column);
    const auto add_kinds = [&](const kinds& all, std::size_t most, auto cells_of) {
      std::vector<kind> list;
      for (const auto& [name, k] : all) list.push_back({name, k.count, k.flops, k.bytes, k.seconds});
      std::sort(list.begin(), list.end(), [](const kind& a, const kind& b) {
        return std::tuple(b.seconds, b.flops, b.count, a.name) < std::tuple(a.seconds, a.flops, a.count, b.name);
      });
      for (std::size_t k = 0; k < list.size() && k < most; ++k) table.add(cells_of(list[k]));
      if (list.size() > most) table.add({"and " + std::to_string(list.size() - most) + " more"});
    };
    using cells = std::vector<std::string>;
    table.add({"operator", "number", "flops", ""});
    add_kinds(computed, 10, [this](const kind& k) { return cells{k.name, std::to_string(k.count), format_.flops(k.flops), ""}; });
    table.add({""});
    table.add({"collective", "number", "bytes", "time"});
    add_kinds(sent, 8, [this](const kind& k) {
      return cells{k.name, std::to_string(k.count), format_.bytes(k.bytes), format_.time(k.seconds)};
    });
    if (!in_scopes.empty()) {
      table.add({""});
      table.add({"scope", "flops", "bytes", "time"});
      add_kinds(in_scopes, 6, [this](const kind& k) {
        return cells{k.name, format_.flops(k.flops), format_.bytes(k.bytes), format_.time(k.seconds)};
      });
    }
    table.add({""});
    for (const auto& [name, number] : totals()) table.add({name, number, "", ""});
    return table.str();
  }

  /// The result of planning for an operator: the sharding of its value, and the bytes that are sent for it. Operators
  /// of two plans are matched by name, line, and number among the operators with this name and line.
  struct operator_row {
    std::string name, line;
    int which = 0;
    std::string outcome;
  };
  [[nodiscard, gnu::cold]] std::vector<operator_row> rows_by_operator() const {
    std::vector<std::int64_t> sent(plan_.nodes.size(), 0);
    for (const auto& s : plan_.steps)
      if (communicates(s)) sent[static_cast<std::size_t>(s.node)] += s.bytes_sent * s.times;
    std::map<std::pair<std::string, std::string>, int> count_of;
    std::vector<operator_row> rows;
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const auto& n = plan_.nodes[i];
      if (n.value < 0) continue;
      const auto& v = plan_.value(n.value);
      operator_row row{name_of(n.op), line_of(n.at), 0, std::string(sharding_text(mesh_, v.layout, v.global.count).view())};
      if (sent[i] > 0) row.outcome += ", sends " + format_.bytes(sent[i]);
      row.which = count_of[{row.name, row.line}]++;
      rows.push_back(std::move(row));
    }
    return rows;
  }

  /// The computation of a step, or its communication along one axis. Events are ordered by the steps of the plan.
  struct event {
    const plan_step* step = nullptr;
    int axis = -1;         // -1: the step computes
    bool goes_on = false;  // continues the event before along another axis
    double begin = 0, seconds = 0;
    std::int64_t flops = 0;
  };
  [[nodiscard, gnu::cold]] std::vector<event> events() const {
    struct work {
      std::int64_t flops = 0;
      double seconds = 0;
    };
    std::vector<work> done(plan_.steps.size());
    work read_along;  // of operators that are computed by the step of a later operator
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const auto& n = plan_.nodes[i];
      if (n.value < 0) continue;
      const int step = plan_.value(n.value).step;
      if (scopes_.is_shown(static_cast<int>(i))) read_along = {read_along.flops + n.flops, read_along.seconds + seconds(n)};
      if (step < 0) continue;
      auto& all_of = done[static_cast<std::size_t>(step)];
      all_of = {all_of.flops + read_along.flops, all_of.seconds + read_along.seconds};
      read_along = {};
    }
    std::vector<event> all;
    double now = 0, sent = 0;  // messages are sent one after the other, concurrently with computation if they are started
    std::vector<double> there(plan_.steps.size(), 0);
    const auto add = [&](double& clock, event e) {
      e.begin = clock;
      clock += e.seconds;
      all.push_back(e);
    };
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const auto& s = plan_.steps[i];
      now = std::max(now, there[i]);
      if (done[i].seconds > 0) add(now, {&s, -1, false, 0, done[i].seconds, done[i].flops});
      if (!is_sent(s)) continue;
      sent = std::max(sent, now);
      const auto times = step_times(rates_, plan_, mesh_.shape, s);
      bool goes_on = false;
      for (int a = 0; a < times.count; ++a) {  // axis by axis, like their cost
        if (times[a] == 0) continue;
        add(sent, {&s, a, goes_on, 0, seconds_of(times[a]) * static_cast<double>(s.times), 0});
        goes_on = true;
      }
      (s.target >= 0 ? there[static_cast<std::size_t>(s.target)] : now) = sent;  // started here, finished at `target`
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
    const int axes = mesh_.shape.axis_count();
    for (int a = 0; a < axes; ++a) track(1 + a, "axis " + std::string(mesh_.name(a)));
    const auto all = events();
    if (!scopes_.empty()) track(1 + axes, "scope");
    for (const auto& c : calls(all))
      t += "{\"name\": \"" + escaped_json(c.path) + "\", \"ph\": \"X\", \"pid\": 0, \"tid\": " + std::to_string(1 + axes) + ", " +
           span_text(c.begin, c.end - c.begin) + "},\n";
    for (const auto& e : all) {
      const auto& s = *e.step;
      t += "{\"name\": \"" + name_of_event(e) + "\", \"ph\": \"X\", \"pid\": 0, \"tid\": " + std::to_string(1 + e.axis) + ", " +
           span_text(e.begin, e.seconds) + ", \"args\": {\"line\": \"" + escaped_json(line_of(s)) + '"' +
           (scopes_.empty() ? "" : ", \"scope\": \"" + escaped_json(path_of(s)) + '"') +
           ", \"bytes\": " + std::to_string(s.bytes_sent) + ", \"times\": " + std::to_string(s.times) + "}},\n";
    }
    t.erase(t.find_last_of('}') + 1);
    return t + "]}\n";
  }

  /// A span of time with events of a single scope.
  struct call {
    std::string path;
    double begin = 0, end = 0;
  };
  /// Returns the calls, outer scopes before inner scopes. A call ends at the first event outside of its scope.
  [[nodiscard, gnu::cold]] std::vector<call> calls(const std::vector<event>& all) const {
    std::vector<call> found;
    std::vector<std::pair<int, std::size_t>> open;  // scopes, outermost first, and their positions in `found`
    for (const auto& e : all) {
      const auto around = scopes_.around(scopes_.scope_of(*e.step));
      std::size_t same = 0;
      while (same < open.size() && same < around.size() && open[same].first == around[same]) ++same;
      open.resize(same);
      for (; same < around.size(); ++same) {
        open.emplace_back(around[same], found.size());
        found.push_back({scopes_.path(around[same]), e.begin, e.begin});
      }
      for (const auto& [scope, at] : open) found[at].end = std::max(found[at].end, e.begin + e.seconds);
    }
    return found;
  }

  /// Returns the timeline as a picture: a track for the computation and a track for each mesh axis, a time axis, and a
  /// legend. A wide box shows the name of its step. Boxes narrower than half a pixel are merged with the next box on
  /// their track.
  [[nodiscard, gnu::cold]] std::string timeline_svg() const {
    constexpr int left = 110, width = 1000, track_height = 28, top = 34;
    const auto all = events();
    double end = 0;
    for (const auto& e : all) end = std::max(end, e.begin + e.seconds);
    const double scale = end > 0 ? width / end : 0;
    const int tracks = 1 + mesh_.shape.axis_count(), bottom = top + tracks * track_height;
    std::string t;
    for (int k = 0; k <= 4; ++k) {
      const int x = left + k * width / 4;
      t += svg_line(x, 20, x, bottom, "g") + words(x + 3, 16, format_.time(end * k / 4), false);
    }
    t += words(8, 16, "time in a step", false);
    for (int k = 0; k < tracks; ++k)
      t += words(8, top + k * track_height + 16, k == 0 ? "computation" : "axis " + std::string(mesh_.name(k - 1)), true);
    struct drawn {
      double begin = 0, end = 0;
      std::int64_t count = 0;
      const event* first = nullptr;
    };
    std::vector<drawn> open(static_cast<std::size_t>(tracks));
    const auto draw = [&](drawn& d) {
      if (d.first == nullptr) return;
      const auto& e = *d.first;
      const auto name = d.count > 1 ? std::to_string(d.count) + " steps" : name_of_event(e);
      const auto tooltip = d.count > 1 ? name
                                       : name + ", " + line_of(*e.step) + (path_of(*e.step).empty() ? "" : ", in ") +
                                             path_of(*e.step) + ", " + format_.time(e.seconds) +
                                             (e.axis < 0 ? std::string() : ", " + format_.bytes(e.step->bytes_sent));
      const double x = left + d.begin * scale, w = (d.end - d.begin) * scale;
      const int y = top + (1 + e.axis) * track_height;
      t += box(x, y, w, track_height - 6, e.axis < 0 ? colour_of_computation : colour_of(static_cast<int>(e.step->collective)),
               tooltip);
      // The longest name that fits: of the step, of its operator, or of its line or value.
      for (const std::string& shown : {name, d.count > 1 ? name : operator_of(*e.step), d.count > 1 ? name : line_of(*e.step)})
        if (w > text_width(shown) + 6) {
          t += words(x + 3, y + 15, shown, false, "k");
          break;
        }
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
    return svg_file(left + width + 70, bottom + 32, t + legend(left, bottom + 8));
  }

  [[nodiscard, gnu::cold]] std::string axes_of_step(const plan_step& s) const {
    return std::string(axes_text(mesh_, s.axes).view());
  }
  [[nodiscard]] const scope_names& scopes() const { return scopes_; }
  [[nodiscard]] const planned_node& node_of(const plan_step& s) const { return plan_.nodes[static_cast<std::size_t>(s.node)]; }
  [[nodiscard, gnu::cold]] std::string operator_of(const plan_step& s) const { return name_of(node_of(s).op); }
  [[nodiscard]] static std::string time_text(double seconds) { return exact_time(seconds); }

  /// Returns the seconds of a step in one run of the program.
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
  /// Returns a key that is equal for the same operator in several layers: the line, or the name of a value without
  /// digits, since layers number the names of their values.
  [[nodiscard, gnu::cold]] static std::string place_of(const location& at) {
    std::string place = line_of(at);
    if (has_no_line(at)) std::erase_if(place, [](char c) { return c >= '0' && c <= '9'; });
    return place;
  }
  /// Returns the seconds of an operator in one run of the program.
  [[nodiscard]] double seconds(const planned_node& n) const { return detail::seconds_of(rates_.time_of(n.work)); }

 private:
  /// Returns true for operators of documents, which have no source line.
  [[nodiscard]] static bool has_no_line(const location& at) { return at.line <= 0 && !at.is_input(); }
  [[nodiscard]] bool is_sent(const plan_step& s) const { return communicates(s) && scopes_.is_shown(s); }
  [[nodiscard]] const std::string& path_of(const plan_step& s) const { return scopes_.path(scopes_.scope_of(s)); }
  [[nodiscard, gnu::cold]] std::string name_of_event(const event& e) const {
    return e.axis < 0 ? operator_of(*e.step) : name_of(e.step->collective) + std::string(" for ") + operator_of(*e.step);
  }

  const plan_view& plan_;
  const mesh_info& mesh_;
  network_rates rates_;
  scope_names scopes_;
  number_format format_;
};

/// Compares two plans: collectives by kind, totals, and operators whose sharding or communication differs.
[[gnu::cold]] inline std::string compare_costs(const cost_report& a, const cost_report& b) {
  const auto first = a.by_kind_and_axes(), second = b.by_kind_and_axes();
  auto names = first;
  names.insert(second.begin(), second.end());
  const auto cell_of = [&](const std::map<std::string, cost_report::sum>& all, const std::string& name) -> std::string {
    const auto it = all.find(name);
    if (it == all.end()) return "-";
    return std::to_string(it->second.count) + ": " + a.format().bytes(it->second.bytes) + ", " +
           a.format().time(it->second.seconds);
  };
  text_table table;
  table.align_right(1);
  table.align_right(2);
  table.add({"", "first", "second", ""});
  const auto add = [&](const std::string& name, const std::string& x, const std::string& y) {
    table.add({name, x, y, x == y ? "=" : ""});
  };
  for (const auto& [name, all] : names) add(name, cell_of(first, name), cell_of(second, name));
  table.add({""});
  const auto total_a = a.totals(), total_b = b.totals();
  for (std::size_t k = 0; k < total_a.size(); ++k) add(total_a[k].first, total_a[k].second, total_b[k].second);

  using key = std::tuple<std::string, std::string, int>;
  const auto rows_a = a.rows_by_operator(), rows_b = b.rows_by_operator();
  std::map<key, std::string> of_a, of_b;
  for (const auto& r : rows_a) of_a[{r.name, r.line, r.which}] = r.outcome;
  for (const auto& r : rows_b) of_b[{r.name, r.line, r.which}] = r.outcome;
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
  for (const auto& r : rows_a) add_row(r, r.outcome, find(of_b, r));
  for (const auto& r : rows_b)
    if (find(of_a, r) == "-") add_row(r, "-", r.outcome);
  if (count > most_rows) differing.add({"and " + std::to_string(count - most_rows) + " more"});
  return table.str() + '\n' + (count > 0 ? differing.str() : "") + std::to_string(equal) +
         (equal == 1 ? " operator is" : " operators are") + " equal in both\n";
}

}  // namespace gspmd::detail
