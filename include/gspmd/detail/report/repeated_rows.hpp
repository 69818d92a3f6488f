// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "gspmd/detail/support/language.hpp"

/// Finds repeated rows of a report, such as the layers of a network.
namespace gspmd {

/// Rows [begin, end), repeated `times` times.
struct row_block {
  std::size_t begin = 0, end = 0, times = 1;
};

/// Returns the rows as blocks, with repeated runs found. If several runs begin at a row, chooses the run that saves the
/// most rows. Example: rows a b a b c give {0, 2, 2 times}, {4, 5, once}.
template <class Row>
[[nodiscard, gnu::cold]] std::vector<row_block> repeated_rows(const std::vector<Row>& rows) {
  constexpr std::size_t longest = 256;
  std::vector<row_block> blocks;
  for (std::size_t i = 0; i < rows.size();) {
    row_block best{i, i + 1, 1};
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

}  // namespace gspmd
