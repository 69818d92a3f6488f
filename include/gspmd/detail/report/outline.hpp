// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/report/cost_report.hpp"
#include "gspmd/detail/report/repeated_rows.hpp"

/// A program of any length as a list that fits a screen. The computation between two collectives is one row. Repeated
/// rows, such as the layers of a network, are written once.
namespace gspmd::detail {

struct outline_row {
  std::string what;    // operators, or a collective with its axes
  std::string detail;  // flops, or bytes and the operator they are sent for
  double seconds = 0;
  int kind = -1;      // of a collective; -1: computation
  std::string scope;  // name without numbers, so that layers are equal
  friend bool operator==(const outline_row&, const outline_row&) = default;
};

class outline {
 public:
  explicit outline(const cost_report& costs) : format_(costs.format()), has_scopes_(!costs.scopes().empty()) {
    std::vector<std::string> computed;
    outline_row computing;
    std::int64_t flops = 0;
    const auto end_computing = [&] {
      if (computed.empty()) return;
      constexpr std::size_t most = 6;
      for (std::size_t k = 0; k < computed.size() && k < most; ++k) computing.what += (k > 0 ? ", " : "") + computed[k];
      if (computed.size() > most) computing.what += " and " + std::to_string(computed.size() - most) + " more kinds";
      computing.detail = format_.flops(flops);
      rows_.push_back(std::move(computing));
      computing = {};
      computed.clear();
      flops = 0;
    };
    for (const auto& e : costs.events()) {
      total_ += e.seconds;
      const auto& scope = costs.scopes().name(costs.scopes().scope_of(*e.step));
      if (e.axis < 0) {
        if (scope != computing.scope) end_computing();
        computing.scope = scope;
        const auto name = costs.operator_of(*e.step);
        if (std::find(computed.begin(), computed.end(), name) == computed.end()) computed.push_back(name);
        computing.seconds += e.seconds;
        flops += e.flops;
        continue;
      }
      end_computing();
      if (e.goes_on) {
        rows_.back().seconds += e.seconds;
        continue;
      }
      const auto& s = *e.step;
      rows_.push_back({name_of(s.collective) + std::string(" over ") + costs.axes_of_step(s),
                       format_.bytes(s.bytes_sent) + " for " + costs.operator_of(s) +
                           (s.times == 1 ? std::string() : ", " + std::to_string(s.times) + " times"),
                       e.seconds, static_cast<int>(s.collective), scope});
    }
    end_computing();
    blocks_ = repeated_rows(rows_);
  }

  [[nodiscard, gnu::cold]] std::string text() const {
    text_table table;
    table.align_right(0);
    const auto cells = [&](const std::string& time, const std::string& scope, const std::string& what,
                           const std::string& detail) {
      return has_scopes_ ? std::vector<std::string>{time, scope, what, detail} : std::vector<std::string>{time, what, detail};
    };
    table.add(cells("time", "scope", "", ""));
    for (const auto& b : blocks_) {
      if (b.times > 1) table.add({std::to_string(b.times) + " times"});
      for (auto i = b.begin; i < b.end; ++i)
        table.add(
            cells(format_.time(rows_[i].seconds), rows_[i].scope, (b.times > 1 ? "| " : "") + rows_[i].what, rows_[i].detail));
    }
    table.add(has_scopes_ ? cells(format_.time(total_), "in all", "", "") : cells(format_.time(total_), "", "in all", ""));
    return table.str();
  }

  /// Draws a row of text and a bar for each row of the outline. The times, bytes, flops and bars are those of one
  /// repetition. A frame around repeated rows has their number and their time in all.
  [[nodiscard, gnu::cold]] std::string svg() const {
    constexpr int row_height = 24, left = 150, bar = 200, top = 30;
    double longest = 0;
    std::vector<std::string> names;
    std::size_t widest_name = 10, widest_detail = 10;
    for (const auto& b : blocks_)
      for (auto i = b.begin; i < b.end; ++i) {
        const auto& row = rows_[i];
        names.push_back((row.scope.empty() ? "" : row.scope + ": ") + row.what);
        longest = std::max(longest, row.seconds);
        widest_name = std::max(widest_name, names.back().size());
        widest_detail = std::max(widest_detail, row.detail.size());
      }
    const int at_time = left + bar + 10, at_name = at_time + 60;
    const int at_detail = at_name + 20 + static_cast<int>(text_width(std::string(widest_name, ' ')));
    const int width = at_detail + 20 + static_cast<int>(text_width(std::string(widest_detail, ' ')));
    std::string t = words(left, 16, "time of one repetition", true) + words(at_name, 16, "operators or collective", true) +
                    words(at_detail, 16, "flops or bytes of one repetition", true);
    int y = top;
    std::size_t shown = 0;
    for (const auto& b : blocks_) {
      const int begin = y;
      double seconds = 0;
      for (auto i = b.begin; i < b.end; ++i, y += row_height) {
        const auto& row = rows_[i];
        seconds += row.seconds;
        t += box(left, y, longest > 0 ? bar * row.seconds / longest : 0, row_height - 6,
                 row.kind < 0 ? colour_of_computation : colour_of(row.kind));
        t += words(at_time, y + 13, format_.time(row.seconds), false) + words(at_name, y + 13, names[shown++], false) +
             words(at_detail, y + 13, row.detail, false);
      }
      if (b.times == 1) continue;
      const int middle = (begin + y) / 2;
      t += words(8, middle - 4, std::to_string(b.times) + " times", true) +
           words(8, middle + 12, format_.time(seconds * static_cast<double>(b.times)) + " in all", false);
      t += R"(<path class="f" d="M)" + std::to_string(left - 6) + ' ' + std::to_string(begin) + " h-6 v" +
           std::to_string(y - begin - 6) +
           R"( h6" fill="none"/>)"
           "\n";
      y += 6;
    }
    t += words(8, y + 12, format_.time(total_) + " in all", true);
    return svg_file(std::max({width, left + 650, at_detail + 230}), y + 50, t + legend(left, y + 24));
  }

 private:
  std::vector<outline_row> rows_;
  std::vector<row_block> blocks_;
  double total_ = 0;
  number_format format_;
  bool has_scopes_;
};

}  // namespace gspmd::detail
