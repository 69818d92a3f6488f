// SPDX-License-Identifier: Apache-2.0
// The matrices of the sparse benchmarks, and their layouts on two devices.
#pragma once

#include <gspmd/gspmd.hpp>
#include <gspmd/sparse.hpp>

#include <cstdint>
#include <vector>

namespace bench {

using std::int64_t;
using doubles = std::vector<double>;

/// Compressed rows.
struct compressed {
  int64_t rows = 0, block = 1;
  std::vector<std::int32_t> row_start{0}, column;
  doubles values;
  void add(int64_t c, double v) {
    column.push_back(static_cast<std::int32_t>(c));
    for (int64_t i = 0; i < block * block; ++i) values.push_back(v + 0.25 * static_cast<double>(i));
  }
  void end_row() { row_start.push_back(static_cast<std::int32_t>(column.size())); }
};
inline compressed laplacian(int64_t height, int64_t width, int64_t block) {
  compressed a;
  a.rows = height * width;
  a.block = block;
  for (int64_t i = 0; i < height; ++i)
    for (int64_t j = 0; j < width; ++j) {
      const auto at = i * width + j;
      if (i > 0) a.add(at - width, -1);
      if (j > 0) a.add(at - 1, -1);
      a.add(at, 4);
      if (j + 1 < width) a.add(at + 1, -1);
      if (i + 1 < height) a.add(at + width, -1);
      a.end_row();
    }
  return a;
}
/// 9 columns in each row, all near the diagonal.
inline compressed scattered(int64_t rows) {
  compressed a;
  a.rows = rows;
  std::uint32_t state = 1;
  for (int64_t r = 0; r < rows; ++r) {
    for (int k = 0; k < 9; ++k) {
      state = state * 1664525U + 1013904223U;
      a.add((r + (state >> 8) % 4001 + rows - 2000) % rows, 1);
    }
    a.end_row();
  }
  return a;
}

/// The layout of a matrix on two devices, which send each other `halo` elements.
constexpr gspmd::sparse_layout room(int64_t rows, int64_t block, int64_t entries, int64_t halo) {
  gspmd::sparse_layout l;
  l.rows = l.cols = rows;
  l.devices = 2;
  l.block = block;
  l.entries = entries;
  l.halo_rows = halo + 1;
  l.exchanges[0] = {1, halo, 3};
  l.exchange_count = 1;
  return l;
}
inline constexpr gspmd::sparse_layout five_points = room(1500 * 1500, 1, 5 * 1500 * 750 - 3 * 1000, 1500);
inline constexpr gspmd::sparse_layout at_random = room(1'000'000, 1, 9 * 500'000, 4000);
inline constexpr gspmd::sparse_layout in_blocks = room(500 * 500, 3, 5 * 500 * 250 - 1000, 500);

}  // namespace bench
