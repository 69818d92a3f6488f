// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/report/cost_report.hpp"
#include "gspmd/detail/report/svg_text.hpp"

/// A plan as one HTML page without scripts and without external files. It opens in any browser and can be stored with
/// the results of a run.
namespace gspmd::detail {

/// The program as a tree of its scopes. Consecutive scopes with equal names and contents, such as the layers of a
/// network, are shown once with their number.
class html_program {
 public:
  html_program(const plan_view& plan, const mesh_info& mesh, const cost_report& costs)
      : plan_(plan), mesh_(mesh), costs_(costs), steps_of_(plan.nodes.size()) {
    for (std::size_t i = 0; i < plan.steps.size(); ++i)
      if (communicates(plan.steps[i])) steps_of_[static_cast<std::size_t>(plan.steps[i].node)].push_back(static_cast<int>(i));
    for (std::size_t i = 0; i < plan.nodes.size(); ++i) add(static_cast<int>(i));
    while (open_.size() > 1) close();
  }
  [[nodiscard, gnu::cold]] std::string text() const { return joined(open_.front(), open_.front().seconds); }

 private:
  /// A row of an operator or collective, or a whole scope.
  struct piece {
    std::string name;  // of a scope; "" for a row
    std::string text;
    std::string tooltip;  // of a row
    std::string alike;    // equal if the contents are equal, apart from the numbers in their names
    double seconds = 0;
    std::int64_t bytes = 0;
    std::size_t times = 1;
  };
  struct scope_pieces {
    int scope = -1;
    std::vector<piece> pieces;
    double seconds = 0;
    std::int64_t bytes = 0;
  };

  [[gnu::cold]] void add(int i) {
    const auto& n = plan_.nodes[static_cast<std::size_t>(i)];
    const auto& sends = steps_of_[static_cast<std::size_t>(i)];
    if (!costs_.scopes().is_shown(i) || (n.value < 0 && sends.empty())) return;
    enter(n.scope);
    const int made = n.value < 0 ? -1 : plan_.value(n.value).step;
    for (const int k : sends)
      if (n.value < 0 || k <= made) add_collective(plan_.steps[static_cast<std::size_t>(k)]);
    if (n.value < 0) return;
    const auto& v = plan_.value(n.value);
    const std::string type = std::string(name_of(v.type)) + ' ' + std::string(shape_text(v.global).view());
    const std::string lies(sharding_text(mesh_, v.layout, v.global.count).view());
    const auto line = cost_report::line_of(n.at);
    add_row(escaped_xml(n.at.is_input() ? line : name_of(n.op)), escaped_xml(type + ' ' + lies),
            line + ": " + type + ", sharding " + lies + ", on a device " + std::string(shape_text(v.local).view()) + ", " +
                std::to_string(n.flops) + " flops",
            cost_report::place_of(n.at), costs_.seconds(n), 0);
    for (const int k : sends)
      if (k > made) add_collective(plan_.steps[static_cast<std::size_t>(k)]);
  }
  [[gnu::cold]] void add_collective(const plan_step& s) {
    const std::string times = s.times == 1 ? "" : std::to_string(s.times) + " times";
    add_row(std::string("<i style=\"background:") + colour_of(static_cast<int>(s.collective)) + "\">" + name_of(s.collective) +
                " over " + escaped_xml(costs_.axes_of_step(s)) + "</i>",
            times,
            "for " + costs_.operator_of(s) + ", " + costs_.line_of(s) + ": one device sends " + std::to_string(s.bytes_sent) +
                " bytes" + (times.empty() ? "" : ", " + times),
            costs_.operator_of(s) + cost_report::place_of(costs_.node_of(s).at), costs_.seconds(s),
            saturating_multiply(s.bytes_sent, s.times));
  }
  [[gnu::cold]] void add_row(const std::string& what, const std::string& detail, const std::string& tooltip,
                             const std::string& place, double seconds, std::int64_t bytes) {
    auto& now = open_.back();
    now.pieces.push_back({"", "<span>" + what + "</span><span>" + detail + "</span>", escaped_xml(tooltip), what + detail + place,
                          seconds, bytes});
    now.seconds += seconds;
    now.bytes += bytes;
  }
  /// Closes and opens scopes until `scope` is the innermost one.
  [[gnu::cold]] void enter(int scope) {
    const auto around = costs_.scopes().around(scope);
    std::size_t same = 0;
    while (same < around.size() && same + 1 < open_.size() && open_[same + 1].scope == around[same]) ++same;
    while (open_.size() > same + 1) close();
    for (; same < around.size(); ++same) open_.push_back({around[same], {}, 0, 0});
  }
  [[gnu::cold]] void close() {
    const scope_pieces inner = std::move(open_.back());
    open_.pop_back();
    auto& now = open_.back();
    const auto& name = costs_.scopes().name(inner.scope);
    std::string alike;
    for (const auto& p : inner.pieces)
      alike += p.name + '\n' + std::to_string(p.times) + ' ' + p.alike + ' ' + std::to_string(p.seconds) + ' ' +
               std::to_string(p.bytes) + '\n';
    piece p{name.substr(name.rfind('/') + 1), joined(inner, inner.seconds), "", std::move(alike), inner.seconds, inner.bytes};
    now.seconds += p.seconds;
    now.bytes += p.bytes;
    if (!now.pieces.empty() && now.pieces.back().name == p.name && now.pieces.back().alike == p.alike) {
      ++now.pieces.back().times;
      return;
    }
    now.pieces.push_back(std::move(p));
  }
  /// `whole`: the seconds of a full bar.
  [[nodiscard, gnu::cold]] static std::string joined(const scope_pieces& all, double whole) {
    std::string t;
    for (const auto& p : all.pieces) {
      const double seconds = p.seconds * static_cast<double>(p.times);
      const auto percent = static_cast<int>(whole > 0 ? 100 * seconds / whole : 0);
      const auto bytes = saturating_multiply(p.bytes, static_cast<std::int64_t>(p.times));
      const std::string figures = "<b style=\"background:linear-gradient(to right,#c8d8c8 " + std::to_string(percent) +
                                  "%,transparent 0)\">" + (seconds > 0 ? cost_report::time_text(seconds) : "") + "</b><b>" +
                                  (bytes > 0 ? std::to_string(bytes) + " bytes" : "") + "</b>";
      if (p.name.empty()) {
        t += "<div title=\"" + p.tooltip + "\">" + p.text + figures + "</div>\n";
      } else {
        t += "<details><summary><span>" + escaped_xml(p.name) + "</span><span>" +
             (p.times > 1 ? std::to_string(p.times) + " times, all equal" : "") + "</span>" + figures + "</summary>\n" + p.text +
             "</details>\n";
      }
    }
    return t;
  }

  const plan_view& plan_;
  const mesh_info& mesh_;
  const cost_report& costs_;
  std::vector<std::vector<int>> steps_of_;  // by node: the steps that communicate for it
  std::vector<scope_pieces> open_{1};       // the program, then the open scopes, outermost first
};

/// `most_expensive`: the text about the most expensive collectives; if empty, the text of the report.
[[gnu::cold]] inline std::string html_page(const plan_view& plan, const mesh_info& mesh, const network& net,
                                           std::string_view scope, const std::string& most_expensive) {
  const cost_report costs(plan, mesh, net, scope);
  const auto title = "Plan on " + escaped_xml(named_sizes_text(mesh).view());
  std::string t =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>" + title +
      "</title>\n<style>\n"
      "body{font:14px sans-serif;max-width:1200px;margin:1em auto;padding:0 1em}pre,table{font:13px monospace;overflow:auto}\n"
      "td{padding:1px 1em 1px 0}svg{max-width:100%;height:auto}details{padding-left:1em;border-left:1px solid #bbb}\n"
      "div[title],summary{display:grid;grid-template-columns:minmax(14em,2fr) 3fr 9em 11em;gap:1em;padding:1px 0}\n"
      "div[title]:hover,summary:hover{background:#f0f0f0}summary{cursor:pointer;font-weight:bold}\n"
      "summary>:first-child::before{content:\"\\25B8  \"}details[open]>summary>:first-child::before{content:\"\\25BE  \"}\n"
      "i{font-style:normal;padding:0 4px;border-radius:3px}b{font-weight:normal;text-align:right}\n"
      "</style></head><body>\n<h1>" +
      title + "</h1>\n<table>\n";
  for (const auto& [name, number] : costs.totals()) t += "<tr><td>" + name + "</td><td>" + number + "</td></tr>\n";
  t += "</table>\n<h2>Time</h2>\n" + costs.timeline_svg() + "<h2>Dearest collectives</h2>\n<pre>" +
       escaped_xml(most_expensive.empty() ? costs.most_expensive(10) : most_expensive, true) + "</pre>\n<h2>Program</h2>\n";
  return t + html_program(plan, mesh, costs).text() + "</body></html>\n";
}

}  // namespace gspmd::detail
