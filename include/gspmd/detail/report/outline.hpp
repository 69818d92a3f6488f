// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/report/cost_report.hpp"

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

/// Rows [begin, end), repeated `times` times.
struct outline_block {
  std::size_t begin = 0, end = 0, times = 1;
};

/// Finds repeated runs of rows. If several runs begin at a row, chooses the run that saves the most rows. Example: rows
/// a b a b c give {0, 2, 2 times}, {4, 5, once}.
[[gnu::cold]] inline std::vector<outline_block> blocks_of(const std::vector<outline_row>& rows) {
  constexpr std::size_t longest = 256;
  std::vector<outline_block> blocks;
  for (std::size_t i = 0; i < rows.size();) {
    outline_block best{i, i + 1, 1};
    std::size_t saved = 0;
    for (std::size_t n = 1; n <= longest && i + 2 * n <= rows.size(); ++n) {
      std::size_t same = 0;
      while (i + n + same < rows.size() && rows[i + n + same] == rows[i + same]) ++same;
      if (const auto times = 1 + same / n; (times - 1) * n > saved) {
        saved = (times - 1) * n;
        best = {i, i + n, times};
      }
    }
    if (best.times == 1 && !blocks.empty() && blocks.back().times == 1) blocks.back().end = best.end;
    else blocks.push_back(best);
    i += (best.end - best.begin) * best.times;
  }
  return blocks;
}

class outline {
 public:
  explicit outline(const cost_report& costs) : has_scopes_(!costs.scopes().empty()) {
    std::vector<std::string> computed;
    outline_row computing;
    std::int64_t flops = 0;
    const auto end_computing = [&] {
      if (computed.empty()) return;
      constexpr std::size_t most = 6;
      for (std::size_t k = 0; k < computed.size() && k < most; ++k) computing.what += (k > 0 ? ", " : "") + computed[k];
      if (computed.size() > most) computing.what += " and " + std::to_string(computed.size() - most) + " more kinds";
      computing.detail = std::to_string(flops) + " flops";
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
                       std::to_string(s.bytes_sent) + " bytes for " + costs.operator_of(s) +
                           (s.times == 1 ? std::string() : ", " + std::to_string(s.times) + " times"),
                       e.seconds, static_cast<int>(s.collective), scope});
    }
    end_computing();
    blocks_ = blocks_of(rows_);
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
        table.add(cells(cost_report::time_text(rows_[i].seconds), rows_[i].scope, (b.times > 1 ? "| " : "") + rows_[i].what,
                        rows_[i].detail));
    }
    table.add(has_scopes_ ? cells(cost_report::time_text(total_), "in all", "", "")
                          : cells(cost_report::time_text(total_), "", "in all", ""));
    return table.str();
  }

  /// Draws a box for each row, with a bar for its share of the time, including its repetitions. Repeated rows have a
  /// frame.
  [[nodiscard, gnu::cold]] std::string svg() const {
    constexpr int row_height = 26, width = 1000, left = 90;
    std::string t;
    int y = 10;
    for (const auto& b : blocks_) {
      const int begin = y;
      for (auto i = b.begin; i < b.end; ++i, y += row_height) {
        const auto& row = rows_[i];
        const double all = row.seconds * static_cast<double>(b.times);
        const double part = total_ > 0 ? all / total_ : 0;
        t += box(left, y, width - left - 130, row_height - 4, row.kind < 0 ? "#ffffff" : colour_of(row.kind));
        t += words(left + 8, y + 15, (row.scope.empty() ? "" : row.scope + ": ") + row.what, true) +
             words(left + 470, y + 15, row.detail, false);
        t += box(width - 120, y, 1 + static_cast<int>(part * 110), row_height - 4, "#707070");
        t += words(width - 116, y + 15, cost_report::time_text(all), false);
      }
      if (b.times == 1) continue;
      t += words(8, (begin + y) / 2 + 4, std::to_string(b.times) + " times", true);
      t += R"(<path d="M)" + std::to_string(left - 6) + ' ' + std::to_string(begin) + " h-6 v" + std::to_string(y - begin - 4) +
           R"( h6" fill="none" stroke="#404040"/>)"
           "\n";
      y += 6;
    }
    return svg_file(width, y + 10, t);
  }

 private:
  std::vector<outline_row> rows_;
  std::vector<outline_block> blocks_;
  double total_ = 0;
  bool has_scopes_;
};

}  // namespace gspmd::detail
