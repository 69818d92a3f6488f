// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/extend/edge.hpp"

// Memory that the library does not have: a matrix in column-major tiles, as PLASMA and similar libraries store it. This
// header alone adds it.
namespace new_edge {

using namespace gspmd::extend;

struct tiles_edge;

/// A view of a matrix in tiles of `height` x `width` elements. The tiles are in column-major order, and so are the
/// elements of each tile. The last tile of a row or a column has all its elements, too.
struct tiles {
  using element = double;
  using edge = tiles_edge;

  double* data;
  std::int64_t rows, columns, height, width;

  [[nodiscard]] std::int64_t tile_rows() const { return (rows + height - 1) / height; }
  [[nodiscard]] std::int64_t elems() const { return tile_rows() * ((columns + width - 1) / width) * height * width; }
  double& operator()(std::int64_t i, std::int64_t j) const {
    const auto tile = j / width * tile_rows() + i / height;
    return data[tile * height * width + j % width * height + i % height];
  }
};

/// Copies a matrix in tiles to a shard and back.
struct tiles_edge : edge_struct, block_of_step {
  static constexpr const char* name = "tiles";
  using view = tiles;

  static memory_range memory(const view& x) { return {x.data, x.elems() * static_cast<std::int64_t>(sizeof(double))}; }
  static extents shape(const view& x) { return {x.rows, x.columns}; }
  static bool has_own_elements(const view&) { return true; }
  static void read(const view& x, const extents& first, const strided_elements<double>& to) {
    for (std::int64_t j = 0; j < to.shape[1]; ++j)
      for (std::int64_t i = 0; i < to.shape[0]; ++i) to(i, j) = x(first[0] + i, first[1] + j);
  }
  static void write(const view& x, const extents& first, const strided_elements<const double>& from) {
    for (std::int64_t j = 0; j < from.shape[1]; ++j)
      for (std::int64_t i = 0; i < from.shape[0]; ++i) x(first[0] + i, first[1] + j) = from(i, j);
  }
};

}  // namespace new_edge
