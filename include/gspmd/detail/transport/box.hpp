// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/kernels/transpose_block.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/target.hpp"

/// Copies a box of elements between two row-major buffers of any rank.
namespace gspmd::detail {

// These structs are filled dim by dim and remain uninitialised past their rank, because a small collective takes only
// 100 ns.

/// A box of global indices: the indices that a device holds, without padding, or some of these indices.
struct held_ranges {
  int rank = 0;
  std::int64_t begin[max_rank];
  std::int64_t end[max_rank];

  [[nodiscard]] bool any() const {
    for (int d = 0; d < rank; ++d)
      if (begin[d] >= end[d]) return false;
    return true;
  }
  /// Returns the number of elements; 0 for an empty box.
  [[nodiscard]] std::int64_t elems() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= begin[d] < end[d] ? end[d] - begin[d] : 0;
    return n;
  }
};

inline held_ranges intersect(const held_ranges& a, const held_ranges& b) {
  held_ranges both;
  both.rank = a.rank;
  for (int d = 0; d < a.rank; ++d) {
    both.begin[d] = a.begin[d] > b.begin[d] ? a.begin[d] : b.begin[d];
    both.end[d] = a.end[d] < b.end[d] ? a.end[d] : b.end[d];
  }
  return both;
}

/// A row-major buffer: its extents, padding included, and the global indices that it holds. Index i of dim d is at
/// first[d] + step[d] * i of the buffer. The buffers of a movement with a map count the steps of the map instead of
/// indices.
struct buffer_layout {
  held_ranges held;
  std::int64_t local[max_rank];
  std::int64_t first[max_rank], step[max_rank];
  bool has_strides = false;  // not row-major but with the strides below; only read
  std::int64_t stride[max_rank];

  [[gnu::noinline]] void lie_in(const inline_vec<std::int8_t, max_rank>& order) {
    has_strides = true;
    std::int64_t next = 1;
    for (int k = order.count - 1; k >= 0; --k) {
      stride[order[k]] = next;
      next *= local[order[k]];
    }
  }
  [[nodiscard]] std::int64_t elems() const {
    std::int64_t n = 1;
    for (int d = 0; d < held.rank; ++d) n *= local[d];
    return n;
  }
};

/// Returns the layout of the shard of the device at `at`.
///
///   [9] in 5,4, second device: holds [5, 9), local extent 5, first -5
inline buffer_layout layout_of(const mesh_shape& mesh, const extents& global, const sharding& s, const coordinates& at) {
  buffer_layout layout;
  layout.held.rank = global.count;
  for (int d = 0; d < global.count; ++d) {
    layout.held.begin[d] = 0;
    layout.held.end[d] = layout.local[d] = global[d];
    layout.first[d] = 0;
    layout.step[d] = 1;
  }
  for (int i = 0; i < s.splits.count;) {
    const int dim = s.splits[i].dim;
    std::int64_t parts = 1, index = 0;
    for (; i < s.splits.count && s.splits[i].dim == dim; ++i) {
      const int axis = s.splits[i].axis;
      parts *= mesh.sizes[axis];
      index = index * mesh.sizes[axis] + at[axis];
    }
    const auto range = part_range(global[dim], parts, index);
    layout.held.begin[dim] = range.begin;
    layout.held.end[dim] = range.end;
    layout.first[dim] = -range.begin;
    layout.local[dim] = shard_extent(global[dim], parts);
  }
  return layout;
}

inline held_ranges ranges_of(const mesh_shape& mesh, const extents& global, const sharding& s, const coordinates& at) {
  return layout_of(mesh, global, s, at).held;
}

/// Returns the layout of a box that is packed into a separate buffer.
inline buffer_layout packed(const held_ranges& box) {
  buffer_layout layout;
  layout.held = box;
  for (int d = 0; d < box.rank; ++d) {
    layout.local[d] = box.end[d] - box.begin[d];
    layout.first[d] = -box.begin[d];
    layout.step[d] = 1;
  }
  return layout;
}

/// A box in two buffers, with the fewest dims: dims of extent 1 are omitted, and adjacent dims that have no gap in
/// both buffers are combined. Dims are ordered from minor to major.
struct strided_box {
  int rank = 0;
  std::int64_t size[max_rank];
  std::int64_t in_stride[max_rank];
  std::int64_t out_stride[max_rank];

  void add_major_dim(std::int64_t n, std::int64_t in, std::int64_t out) {
    if (n == 1) return;
    if (rank > 0 && size[rank - 1] * in_stride[rank - 1] == in && size[rank - 1] * out_stride[rank - 1] == out) {
      size[rank - 1] *= n;
      return;
    }
    size[rank] = n;
    in_stride[rank] = in;
    out_stride[rank] = out;
    ++rank;
  }
  [[nodiscard]] std::int64_t elems() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= size[d];
    return n;
  }
  /// Returns the number of elements that are contiguous in both buffers.
  [[nodiscard]] std::int64_t row() const { return rank > 0 && in_stride[0] == 1 && out_stride[0] == 1 ? size[0] : 1; }
};

/// A nonempty box and its offsets in both buffers.
struct placed_box {
  strided_box box;
  std::int64_t in_offset = 0;
  std::int64_t out_offset = 0;
};

inline placed_box place(const held_ranges& box, const buffer_layout& in, const buffer_layout& out) {
  placed_box result;
  std::int64_t in_stride = 1, out_stride = 1;
  for (int d = box.rank - 1; d >= 0; --d) {
    const auto stride = in.has_strides ? in.stride[d] : in_stride;
    result.box.add_major_dim(box.end[d] - box.begin[d], stride * in.step[d], out_stride * out.step[d]);
    result.in_offset += (in.first[d] + box.begin[d] * in.step[d]) * stride;
    result.out_offset += (out.first[d] + box.begin[d] * out.step[d]) * out_stride;
    in_stride *= in.local[d];
    out_stride *= out.local[d];
  }
  return result;
}

/// Iterates over the rows of a box. Each iteration covers `count` rows of `row` elements, which are in_step and
/// out_step elements apart.
struct box_walk {
  std::int64_t row, count = 1, in_step = 0, out_step = 0;
  std::int64_t in, out;  // the offsets of the first row
  bool is_there = true;

  explicit box_walk(const placed_box& placed) : box_walk(placed, (placed.box.row() > 1 ? 1 : 0) + 1) {}
  /// The loops of the caller cover the dims below `outer`: the row and the `count` rows. 0: each iteration covers one
  /// element.
  box_walk(const placed_box& placed, int outer)
      : row(placed.box.row()), in(placed.in_offset), out(placed.out_offset), box_(placed.box), outer_(outer) {
    for (int d = outer_; d < box_.rank; ++d) at_[d] = 0;
    if (outer_ == 0 || box_.rank < outer_) return;
    count = box_.size[outer_ - 1];
    in_step = box_.in_stride[outer_ - 1];
    out_step = box_.out_stride[outer_ - 1];
  }
  [[gnu::noinline]] void step() {
    for (int d = outer_; d < box_.rank; ++d) {
      in += box_.in_stride[d];
      out += box_.out_stride[d];
      if (++at_[d] < box_.size[d]) return;
      in -= at_[d] * box_.in_stride[d];
      out -= at_[d] * box_.out_stride[d];
      at_[d] = 0;
    }
    is_there = false;
  }

 private:
  const strided_box& box_;
  int outer_;
  std::int64_t at_[max_rank];
};

}  // namespace gspmd::detail

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Copies as memcpy does, but bypasses the caches. It is faster only if the whole buffer is too large to remain in
/// the caches.
inline void stream_row(void* to, const void* from, std::int64_t n) {
  using byte = unsigned char;
  byte* const out = static_cast<byte*>(to);
  const byte* const in = static_cast<const byte*>(from);
  const auto copy = [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(out + begin, in + begin, static_cast<std::size_t>(end - begin));
  };
  constexpr std::int64_t step = simd_bytes;
  std::int64_t i = elements_to_alignment(out);
  if (n < i + 16 * step) return copy(0, n);
  copy(0, i);
  for (; i + 4 * step <= n; i += 4 * step) {
    const auto a = load_simd(in + i), b = load_simd(in + i + step);
    const auto c = load_simd(in + i + 2 * step), d = load_simd(in + i + 3 * step);
    stream_simd(out + i, a);
    stream_simd(out + i + step, b);
    stream_simd(out + i + 2 * step, c);
    stream_simd(out + i + 3 * step, d);
  }
  copy(i, n);
}

/// Copies a whole buffer.
inline void copy_shard(void* out, const void* in, std::int64_t bytes) {
  if (!can_stream || bytes < stream_from_bytes) {
    std::memcpy(out, in, static_cast<std::size_t>(bytes));
    return;
  }
  stream_row(out, in, bytes);
  fence_streams();
}

template <class Bits>
inline void copy_elements(const box_walk& rows, std::byte* out, const std::byte* in) {
  constexpr std::int64_t bytes = sizeof(Bits);
  for (std::int64_t i = 0; i < rows.count; ++i)
    std::memcpy(out + i * rows.out_step * bytes, in + i * rows.in_step * bytes, sizeof(Bits));
}

/// Does the same as copy_box, for a box that is contiguous along dim `cols` in the first buffer and along dim 0 in
/// the second.
template <class = once>
[[gnu::noinline]] void transpose_box(void* to, const void* from, const placed_box& placed, int cols, std::int64_t bytes,
                                     bool streaming);

/// Copies one box of elements. If `streaming`, uses stream_row; the caller then calls fence_streams().
inline void copy_box(void* to, const void* from, const placed_box& placed, std::int64_t bytes, bool streaming = false) {
  if (placed.box.rank > 1 && placed.box.row() == 1 && placed.box.out_stride[0] == 1)
    for (int d = 1; d < placed.box.rank; ++d)
      if (placed.box.in_stride[d] == 1) return transpose_box(to, from, placed, d, bytes, streaming);
  for (box_walk rows(placed); rows.is_there; rows.step()) {
    const auto* const in = static_cast<const std::byte*>(from) + rows.in * bytes;
    auto* const out = static_cast<std::byte*>(to) + rows.out * bytes;
    const auto row_bytes = rows.row * bytes;
    if (rows.row == 1) with_bits(bytes, [&](auto bits) { copy_elements<decltype(bits)>(rows, out, in); });
    else
      for (std::int64_t i = 0; i < rows.count; ++i) {
        auto* const row = out + i * rows.out_step * bytes;
        if (streaming) stream_row(row, in + i * rows.in_step * bytes, row_bytes);
        else std::memcpy(row, in + i * rows.in_step * bytes, static_cast<std::size_t>(row_bytes));
      }
  }
}

/// Writes one value to each element of the box in the second buffer.
inline void fill_box(void* to, std::uint64_t value, const placed_box& placed, std::int64_t bytes) {
  for (box_walk rows(placed); rows.is_there; rows.step())
    for (std::int64_t i = 0; i < rows.count; ++i) {
      auto* const row = static_cast<std::byte*>(to) + (rows.out + i * rows.out_step) * bytes;
      if (value == 0) std::memset(row, 0, static_cast<std::size_t>(rows.row * bytes));
      else
        with_bits(bytes, [&](auto bits) {
          bits = static_cast<decltype(bits)>(value);
          for (std::int64_t k = 0; k < rows.row; ++k) std::memcpy(row + k * bytes, &bits, sizeof bits);
        });
    }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/transport/box.ipp"
#endif
