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

/// A plan as one HTML page without external files. It opens in any browser and can be stored with the results of a run.
/// A script of a few lines is the search box. Without scripts the page lacks only this box.
namespace gspmd::detail {

/// Returns the name of a scope, or of consecutive scopes: `layer[0]` -> `layer 0`; `layer[1]` and `layer[3]` -> `layers
/// 1-3`.
[[gnu::cold]] inline std::string name_of_scopes(std::string_view first, std::string_view last) {
  const auto number = [](std::string_view name) {
    std::string n(name.substr(number_in(name)));
    std::erase_if(n, [](char c) { return c == '[' || c == ']'; });
    return n;
  };
  const std::string from = number(first), base(first.substr(0, number_in(first)));
  if (from.empty()) return std::string(first);
  if (first == last) return base.empty() ? from : base + ' ' + from;
  return (base.empty() ? "" : base + "s ") + from + '-' + number(last);
}

/// The program as a tree of its scopes. Consecutive scopes with equal names and contents, such as the layers of a
/// network, are shown once with their number. The inputs are a tree too: an input is in the outermost scope of its
/// first user.
class html_program {
 public:
  html_program(const plan_view& plan, const mesh_info& mesh, const cost_report& costs, bool shows_inputs)
      : plan_(plan), mesh_(mesh), costs_(costs), steps_of_(plan.nodes.size()) {
    for (std::size_t i = 0; i < plan.steps.size(); ++i)
      if (communicates(plan.steps[i])) steps_of_[static_cast<std::size_t>(plan.steps[i].node)].push_back(static_cast<int>(i));
    const std::vector<int> user = shows_inputs ? first_users() : std::vector<int>();
    for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
      const auto& n = plan.nodes[i];
      if (n.at.is_input() != shows_inputs) continue;
      add(static_cast<int>(i), shows_inputs ? (n.value < 0 ? -1 : user[static_cast<std::size_t>(n.value)]) : n.scope);
    }
    while (open_.size() > 1) close();
  }
  [[nodiscard, gnu::cold]] std::string text() const { return joined(open_.front(), open_.front().seconds); }

 private:
  /// Returns for each value the outermost scope of the first operator that reads it. A message can move the values of
  /// several scopes, so a moved value has the scope of its result.
  [[nodiscard, gnu::cold]] std::vector<int> first_users() const {
    std::vector<int> user(plan_.values.size(), -1);
    const auto of = [&](const table_range& range, int k) -> int& {
      return user[static_cast<std::size_t>(plan_.slots[static_cast<std::size_t>(range.begin + k)])];
    };
    for (std::size_t i = plan_.steps.size(); i-- > 0;) {
      const auto& s = plan_.steps[i];
      const auto around = costs_.scopes().around(costs_.scopes().scope_of(s));
      const bool moves = facts_of(s).work == step_work::moves && s.operands.count == s.results.count;
      for (int k = 0; k < s.operands.count; ++k)
        if (moves && of(s.results, k) >= 0) of(s.operands, k) = of(s.results, k);
        else if (!around.empty()) of(s.operands, k) = around.front();
    }
    return user;
  }
  /// A row of an operator or collective, or a whole scope.
  struct piece {
    std::string name;         // of a scope, equal for all its calls; "" for a row
    std::string first, last;  // own names of the calls
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

  [[gnu::cold]] void add(int i, int scope) {
    const auto& n = plan_.nodes[static_cast<std::size_t>(i)];
    const auto& sends = steps_of_[static_cast<std::size_t>(i)];
    if (!costs_.scopes().is_shown(i) || (n.value < 0 && sends.empty())) return;
    enter(scope);
    const int made = n.value < 0 ? -1 : plan_.value(n.value).step;
    for (const int k : sends)
      if (n.value < 0 || k <= made) add_collective(plan_.steps[static_cast<std::size_t>(k)]);
    if (n.value < 0) return;
    const auto& v = plan_.value(n.value);
    const std::string type = std::string(name_of(v.type)) + ' ' + std::string(shape_text(v.global).view());
    const std::string lies(sharding_text(mesh_, v.layout, v.global.count).view());
    const auto line = cost_report::line_of(n.at);
    add_row(n.at.is_input() ? "input" : escaped_xml(name_of(n.op)), escaped_xml(line), escaped_xml(type + ' ' + lies),
            line + ": " + type + ", sharding " + lies + ", on a device " + std::string(shape_text(v.local).view()) + ", " +
                costs_.format().flops(n.flops),
            n.at.is_input() ? "" : cost_report::place_of(n.at), costs_.seconds(n), 0);
    for (const int k : sends)
      if (k > made) add_collective(plan_.steps[static_cast<std::size_t>(k)]);
  }
  [[gnu::cold]] void add_collective(const plan_step& s) {
    const std::string times = s.times == 1 ? "" : ", " + std::to_string(s.times) + " times";
    std::string moved;
    if (s.operands.count == 1 && s.results.count == 1)
      moved = std::string(sharding_text(mesh_, plan_.operand(s, 0).layout, plan_.operand(s, 0).global.count).view()) + " to " +
              std::string(sharding_text(mesh_, plan_.result(s, 0).layout, plan_.result(s, 0).global.count).view());
    add_row(std::string("<i class=\"c") + std::to_string(static_cast<int>(s.collective)) + "\">" + name_of(s.collective) +
                " over " + escaped_xml(costs_.axes_of_step(s)) + "</i>",
            "for " + escaped_xml(costs_.line_of(s)), escaped_xml(moved + times),
            "for " + costs_.operator_of(s) + ", " + costs_.line_of(s) + ": one device sends " +
                costs_.format().bytes(s.bytes_sent) + times,
            costs_.operator_of(s) + cost_report::place_of(costs_.node_of(s).at), costs_.seconds(s),
            saturating_multiply(s.bytes_sent, s.times));
  }
  [[gnu::cold]] void add_row(const std::string& what, const std::string& name, const std::string& detail,
                             const std::string& tooltip, const std::string& place, double seconds, std::int64_t bytes) {
    auto& now = open_.back();
    now.pieces.push_back({"", "", "", "<span>" + what + "</span><span>" + name + "</span><span>" + detail + "</span>",
                          escaped_xml(tooltip), what + detail + place, seconds, bytes});
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
    const auto last_part = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
    const auto own = last_part(costs_.scopes().path(inner.scope));
    std::string alike;
    for (const auto& p : inner.pieces)
      alike += p.name + '\n' + std::to_string(p.times) + ' ' + p.alike + ' ' + std::to_string(p.seconds) + ' ' +
               std::to_string(p.bytes) + '\n';
    piece p{last_part(costs_.scopes().name(inner.scope)),
            own,
            own,
            joined(inner, inner.seconds),
            "",
            std::move(alike),
            inner.seconds,
            inner.bytes};
    now.seconds += p.seconds;
    now.bytes += p.bytes;
    if (!now.pieces.empty() && now.pieces.back().name == p.name && now.pieces.back().alike == p.alike) {
      ++now.pieces.back().times;
      now.pieces.back().last = own;
      return;
    }
    now.pieces.push_back(std::move(p));
  }
  /// `whole`: the seconds of a full bar.
  [[nodiscard, gnu::cold]] std::string joined(const scope_pieces& all, double whole) const {
    std::string t;
    for (const auto& p : all.pieces) {
      const double seconds = p.seconds * static_cast<double>(p.times);
      const auto percent = static_cast<int>(whole > 0 ? 100 * seconds / whole : 0);
      const auto bytes = saturating_multiply(p.bytes, static_cast<std::int64_t>(p.times));
      const std::string figures = "<b style=\"background:linear-gradient(to right,var(--bar) " + std::to_string(percent) +
                                  "%,transparent 0)\">" + (seconds > 0 ? costs_.format().time(seconds) : "") + "</b><b>" +
                                  (bytes > 0 ? costs_.format().bytes(bytes) : "") + "</b>";
      if (p.name.empty()) {
        t += "<div class=\"r\" title=\"" + p.tooltip + "\">" + p.text + figures + "</div>\n";
      } else {
        t += "<details><summary><span>" + escaped_xml(name_of_scopes(p.first, p.last)) + "</span><span>" +
             (p.times > 1 ? std::to_string(p.times) + " times, all equal" : "") + "</span><span></span>" + figures +
             "</summary>\n" + p.text + "</details>\n";
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

/// Returns the style of the page, with light and dark colours.
[[gnu::cold]] inline std::string html_style() {
  std::string t =
      "<style>\n"
      ":root{color-scheme:light dark;--line:#bbb;--bar:#c8d8c8;--on:#f0f0f0}\n"
      "@media(prefers-color-scheme:dark){:root{--line:#555;--bar:#2f5233;--on:#2a2d2f}body{background:#181a1b;color:#e0e0e0}}\n"
      "body{font:14px sans-serif;max-width:1200px;margin:1em auto;padding:0 1em;overflow-wrap:anywhere}\n"
      "pre{font:13px monospace;overflow:auto}td{padding:1px 1em 1px 0}div.t{overflow-x:auto}\n"
      "details{padding-left:1em;border-left:1px solid var(--line)}\n"
      "div.r,summary{display:grid;grid-template-columns:minmax(12em,4fr) minmax(7em,3fr) minmax(12em,6fr) 6em 6em;gap:0 1em;"
      "padding:1px 0}\n"
      "div.r:hover,summary:hover{background:var(--on)}summary{cursor:pointer;font-weight:bold}\n"
      "div.h{font-weight:bold;border-bottom:1px solid var(--line)}\n"
      "summary>:first-child::before{content:\"\\25B8  \"}details[open]>summary>:first-child::before{content:\"\\25BE  \"}\n"
      "i{font-style:normal;padding:0 "
      "4px;border-radius:3px;color:#000}b{font-weight:normal;text-align:right}div.h>b{font-weight:bold}\n"
      "input{font:inherit;width:100%;max-width:30em;box-sizing:border-box}\n"
      "@media(max-width:700px){div.r,summary{grid-template-columns:1fr 5em 5em}div.r>span,summary>span{grid-column:1/-1}"
      "div.r>b:first-of-type,summary>b:first-of-type{grid-column:2}details{padding-left:.4em}"
      "div.r{border-bottom:1px dotted var(--line)}}\n";
  for (int kind = 0; kind <= static_cast<int>(collective_kind::collective_permute); ++kind)
    t += "i.c" + std::to_string(kind) + "{background:" + colour_of(kind) + "}";
  return t + "\n</style>";
}

/// The search box: shows the rows that contain the text, and opens the scopes around them.
inline constexpr const char* html_search_box =
    "<p><input id=\"find\" type=\"search\" placeholder=\"Search a value, an operator or a collective\" hidden=\"\"/></p>\n";
inline constexpr const char* html_search_script =
    "<script>\n"
    "const box = document.getElementById('find'), rows = [...document.querySelectorAll('div.r:not(.h)')];\n"
    "const scopes = [...document.querySelectorAll('details')];\n"
    "box.hidden = false;\n"
    "box.oninput = () => {\n"
    "  const text = box.value.toLowerCase();\n"
    "  for (const s of scopes) { s.hidden = text !== ''; s.open = text !== ''; }\n"
    "  for (const r of rows) {\n"
    "    r.hidden = !r.textContent.toLowerCase().includes(text);\n"
    "    r.style.display = r.hidden ? 'none' : '';\n"
    "    for (let s = r.parentElement; !r.hidden; s = s.parentElement) { if (s.tagName !== 'DETAILS') break; s.hidden = false; "
    "}\n"
    "  }\n"
    "};\n"
    "</script>\n";

/// `most_expensive`: the text about the most expensive collectives; if empty, the text of the report. `title`: the name
/// of the program; if empty, the mesh.
[[gnu::cold]] inline std::string html_page(const plan_view& plan, const mesh_info& mesh, const network& net,
                                           std::string_view scope, const std::string& most_expensive, std::string_view title = {},
                                           number_form form = number_form::rounded) {
  const cost_report costs(plan, mesh, net, scope, form);
  const auto on = "Plan on " + escaped_xml(named_sizes_text(mesh).view());
  const auto name = title.empty() ? on : escaped_xml(title);
  std::string t =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" "
      "content=\"width=device-width\"/><title>" +
      name + "</title>\n" + html_style() + "</head><body>\n<h1>" + name + "</h1>\n" +
      (title.empty() ? "" : "<p>" + on + "</p>\n") + "<table><tbody>\n";
  for (const auto& [what, number] : costs.totals()) t += "<tr><td>" + what + "</td><td>" + number + "</td></tr>\n";
  t += "</tbody></table>\n<h2>Most expensive collectives</h2>\n<pre>" +
       escaped_xml(most_expensive.empty() ? costs.most_expensive(10) : most_expensive, true) +
       "</pre>\n<h2>Time</h2>\n<div class=\"t\">" + costs.timeline_svg() + "</div>\n<h2>Program</h2>\n<p>Colours: ";
  for (int kind = 0; kind <= static_cast<int>(collective_kind::collective_permute); ++kind)
    t += "<i class=\"c" + std::to_string(kind) + "\">" + name_of(static_cast<collective_kind>(kind)) + "</i> ";
  t += ". The bar is the share of the time of the scope around the row. A scope that is shown once for several equal scopes has "
       "the sums of their times and bytes; its rows have the numbers of a single scope. In <code>[data, _]</code>, dim 0 is "
       "split over "
       "the axis "
       "data and dim 1 is not split. Point at a row to see its local shape and its flops.</p>\n";
  const std::string head =
      "<div class=\"r h\"><span>operator or scope</span><span>value or line</span><span>type, global shape, "
      "sharding</span><b>time</b><b>sent bytes</b></div>\n";
  return t + html_search_box + head + html_program(plan, mesh, costs, false).text() + "<h2>Inputs</h2>\n" + head +
         html_program(plan, mesh, costs, true).text() + html_search_script + "</body></html>\n";
}

}  // namespace gspmd::detail
