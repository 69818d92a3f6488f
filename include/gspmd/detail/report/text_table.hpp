// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// Rows of cells. A column is as wide as its widest cell. A row with a single cell is a remark and spans all columns.
class text_table {
 public:
  [[gnu::cold]] void add(std::vector<std::string> row) {
    if (row.size() > 1) {
      if (widths_.size() < row.size()) widths_.resize(row.size(), 0);
      for (std::size_t c = 0; c < row.size(); ++c)
        if (row[c].size() > widths_[c]) widths_[c] = row[c].size();
    }
    rows_.push_back(std::move(row));
  }
  /// Aligns a column of numbers to the right.
  void align_right(std::size_t column) { right_ |= std::size_t{1} << column; }

  [[nodiscard, gnu::cold]] std::string str() const {
    std::string out;
    for (const auto& row : rows_) {
      std::string one_line;
      for (std::size_t c = 0; c < row.size(); ++c) {
        const std::string space(row.size() == 1 ? 0 : widths_[c] - row[c].size(), ' ');
        one_line += c > 0 ? "  " : "";
        one_line += (right_ >> c & 1U) != 0 && row.size() > 1 ? space + row[c] : row[c] + space;
      }
      one_line.erase(one_line.find_last_not_of(' ') + 1);
      out += one_line + '\n';
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> widths_;
  std::size_t right_ = 0;
};

}  // namespace gspmd::detail
