// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/kernels/reduce_rows.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/windows/detail/window_table.hpp"

/// Reductions of windows, row by row. A row of outputs is the row of the first position of the windows, combined with
/// one more row for each further position. Only the loops over rows are compiled per element type, and all reductions
/// share them.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Computes to[i] = from[step * i].
inline void copy_every(const std::byte* from, std::int64_t step, std::int64_t n, std::byte* to, std::int64_t elem_bytes) {
  if (step == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(n * elem_bytes));
    return;
  }
  with_bits(elem_bytes, [&](auto bits) {
    using element = decltype(bits);
    for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * elem_bytes, from + i * step * elem_bytes, sizeof(element));
  });
}

/// The loops of a window_reduction: over rows, along a row, and over the positions in a window. Strides are in
/// elements.
struct window_walk {
  int outer = 0;                       // dims before the dims of a row
  std::int64_t row = 1, row_step = 1;  // number of outputs, and the step between their windows in the tile
  std::int64_t count[max_rank], in_step[max_rank], out_step[max_rank];  // of the outer dims
  int windows = 0;
  std::int64_t size[max_mapped_dims], tap_step[max_mapped_dims];
  std::int64_t first = 0;  // offset of the first position of a window

  window_walk(const window_reduction& w, const std::int64_t* valid) {
    const int rank = w.out.count;
    std::int64_t stride[max_rank];
    bool is_windowed[max_rank];
    std::fill_n(stride, rank, 1);
    std::fill_n(is_windowed, rank, false);
    for (const auto& along : w.windows) {
      stride[along.dim] = along.window.stride;
      is_windowed[along.dim] = true;
    }
    std::int64_t in = 1, out = 1, inner = 1;
    std::int64_t in_of[max_rank];
    for (int d = rank - 1; d >= 0; --d) {
      in_of[d] = in;
      count[d] = valid[d];
      in_step[d] = stride[d] * in;
      out_step[d] = out;
      in *= w.in[d];
      out *= w.out[d];
    }
    for (outer = rank - 1; outer > 0; --outer) {  // rows continue over inner dims that are whole and equal in the tile
      const int d = outer;
      if (is_windowed[d] || stride[d - 1] != 1 || w.in[d] != w.out[d] || valid[d] != w.out[d]) break;
      inner *= w.out[d];
    }
    row = valid[outer] * inner;
    row_step = stride[outer];
    for (const auto& along : w.windows) {
      size[windows] = along.window.size;
      tap_step[windows++] = along.window.dilation * in_of[along.dim];
      first += along.window.offset * in_of[along.dim];
    }
  }
  /// Calls `visit(offset)` for every position in a window, row-major.
  template <class Visit>
  void for_each_tap(Visit visit) const {
    std::int64_t at[max_mapped_dims]{};
    std::int64_t offset = first;
    for (int w = 0; w >= 0;) {
      visit(offset);
      for (w = windows - 1; w >= 0; --w) {
        offset += tap_step[w];
        if (++at[w] < size[w]) break;
        offset -= at[w] * tap_step[w];
        at[w] = 0;
      }
    }
  }
  /// Calls `visit(in, out)` for the begin of every row.
  template <class Visit>
  void for_each_row(Visit visit) const {
    std::int64_t at[max_rank]{};
    std::int64_t in = 0, out = 0;
    for (int d = 0; d >= 0;) {
      visit(in, out);
      for (d = outer - 1; d >= 0; --d) {
        in += in_step[d];
        out += out_step[d];
        if (++at[d] < count[d]) break;
        in -= at[d] * in_step[d];
        out -= at[d] * out_step[d];
        at[d] = 0;
      }
    }
  }
};

/// Computes to = the reductions of the windows of `from`, for valid[d] windows along each dim d. Elements are combined
/// in the order of the window on every device, so every sharding gives the same bits. Example: windows of 2 over 1, 3,
/// 2 have the sums 4, 5.
[[gnu::noinline]] inline void reduce_windows(const reduction_kernel& kernel, const window_reduction& w, const std::int64_t* valid,
                                             const void* from, void* to) {
  for (int d = 0; d < w.out.count; ++d)
    if (valid[d] <= 0) return;
  alignas(cache_line_bytes) std::byte gathered[reduced_piece_bytes];
  const auto* const in = static_cast<const std::byte*>(from);
  auto* const out = static_cast<std::byte*>(to);
  const auto bytes = kernel.elem_bytes, piece = reduced_piece_bytes / bytes;
  const window_walk walk(w, valid);
  walk.for_each_row([&](std::int64_t row_in, std::int64_t row_out) {
    for (std::int64_t i = 0; i < walk.row; i += piece) {
      const auto n = std::min(piece, walk.row - i);
      std::byte* const piece_out = out + (row_out + i) * bytes;
      bool is_first = true;
      walk.for_each_tap([&](std::int64_t offset) {
        const std::byte* const row = in + (row_in + i * walk.row_step + offset) * bytes;
        if (is_first) {
          copy_every(row, walk.row_step, n, piece_out, bytes);
          is_first = false;
        } else if (walk.row_step == 1) {
          kernel.combine(piece_out, piece_out, piece_out, row, n);
        } else {
          copy_every(row, walk.row_step, n, gathered, bytes);
          kernel.combine(piece_out, piece_out, piece_out, gathered, n);
        }
      });
    }
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
