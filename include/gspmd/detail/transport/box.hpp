// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/kernels/lanes.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/target.hpp"

/// Copying a box of elements between two row-major buffers, of any rank.
namespace gspmd::detail {

// These structs are filled dim by dim and stay uninitialised past their rank: a small collective takes 100 ns.

/// A box of global indices: those that a device really holds, or a part of them.
struct held_ranges {
  int rank = 0;
  std::int64_t begin[max_rank];
  std::int64_t end[max_rank];

  [[nodiscard]] bool any() const {
    for (int d = 0; d < rank; ++d)
      if (begin[d] >= end[d]) return false;
    return true;
  }
  /// 0 for an empty box.
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

/// A row-major buffer: its extents, padding included, and the global indices of what it holds. Index i of dim d is at
/// first[d] + step[d] * i of the buffer. The buffers of a movement with a map count the steps of the map instead of indices.
struct buffer_layout {
  held_ranges held;
  std::int64_t local[max_rank];
  std::int64_t first[max_rank], step[max_rank];

  [[nodiscard]] std::int64_t elems() const {
    std::int64_t n = 1;
    for (int d = 0; d < held.rank; ++d) n *= local[d];
    return n;
  }
};

/// The shard of the device at `at`.
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

/// The layout of a box that is packed into a buffer of its own.
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

/// A box that lies in two buffers, with as few dims as describe it: dims of extent 1 are left out, and a dim joins the
/// next one where both buffers hold them without a gap. Dims run from minor to major.
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
  /// Elements that follow each other in both buffers.
  [[nodiscard]] std::int64_t row() const { return rank > 0 && in_stride[0] == 1 && out_stride[0] == 1 ? size[0] : 1; }
};

/// A nonempty box at its place in both buffers.
struct placed_box {
  strided_box box;
  std::int64_t in_offset = 0;
  std::int64_t out_offset = 0;
};

inline placed_box place(const held_ranges& box, const buffer_layout& in, const buffer_layout& out) {
  placed_box result;
  std::int64_t in_stride = 1, out_stride = 1;
  for (int d = box.rank - 1; d >= 0; --d) {
    result.box.add_major_dim(box.end[d] - box.begin[d], in_stride * in.step[d], out_stride * out.step[d]);
    result.in_offset += (in.first[d] + box.begin[d] * in.step[d]) * in_stride;
    result.out_offset += (out.first[d] + box.begin[d] * out.step[d]) * out_stride;
    in_stride *= in.local[d];
    out_stride *= out.local[d];
  }
  return result;
}

/// Calls `visit(in_offset, out_offset, elems)` for every row of the box.
template <class Visit>
inline void for_each_row(const strided_box& box, Visit visit) {
  const std::int64_t row = box.row();
  const int first = row > 1 ? 1 : 0;
  if (box.rank == first) return visit(std::int64_t{0}, std::int64_t{0}, row);
  std::int64_t at[max_rank] = {};
  std::int64_t in = 0, out = 0;
  while (true) {
    const auto n = box.size[first];
    for (std::int64_t i = 0; i < n; ++i) visit(in + i * box.in_stride[first], out + i * box.out_stride[first], row);
    int d = first + 1;
    for (; d < box.rank; ++d) {
      in += box.in_stride[d];
      out += box.out_stride[d];
      if (++at[d] < box.size[d]) break;
      in -= at[d] * box.in_stride[d];
      out -= at[d] * box.out_stride[d];
      at[d] = 0;
    }
    if (d >= box.rank) return;
  }
}

}  // namespace gspmd::detail

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

template <class T>
inline void copy_row(T* out, const T* in, std::int64_t n) {
  std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(T));
}

/// As memcpy, but leaves the caches to others. Worth it only when all of the buffer is too large to be found there again.
template <class T>
inline void stream_row(T* out, const T* in, std::int64_t n) {
  using bytes = typename lanes<unsigned char>::type;
  constexpr std::int64_t step = lane_elems<T>;
  std::int64_t i = elements_to_alignment(out);
  if (n < i + 16 * step) return copy_row(out, in, n);
  copy_row(out, in, i);
  for (; i + 4 * step <= n; i += 4 * step) {
    bytes a, b, c, d;
    load(a, in + i);
    load(b, in + i + step);
    load(c, in + i + 2 * step);
    load(d, in + i + 3 * step);
    stream(out + i, a);
    stream(out + i + step, b);
    stream(out + i + 2 * step, c);
    stream(out + i + 3 * step, d);
  }
  copy_row(out + i, in + i, n - i);
}

/// Copies all of a buffer.
template <class T>
inline void copy_shard(T* out, const T* in, std::int64_t elems) {
  if (!can_stream || elems * static_cast<std::int64_t>(sizeof(T)) < stream_from_bytes) return copy_row(out, in, elems);
  stream_row(out, in, elems);
  fence_streams();
}

/// Copies one box. `streaming`: see stream_row; the caller fences afterwards.
template <class T>
inline void copy_box(T* out, const T* in, const placed_box& placed, bool streaming = false) {
  in += placed.in_offset;
  out += placed.out_offset;
  if (placed.box.row() == 1) for_each_row(placed.box, [&](std::int64_t i, std::int64_t o, std::int64_t) { out[o] = in[i]; });
  else if (streaming)
    for_each_row(placed.box, [&](std::int64_t i, std::int64_t o, std::int64_t n) { stream_row(out + o, in + i, n); });
  else for_each_row(placed.box, [&](std::int64_t i, std::int64_t o, std::int64_t n) { copy_row(out + o, in + i, n); });
}

/// Writes one value to every element of the second buffer's box.
template <class T>
inline void fill_box(T* out, T value, const placed_box& placed) {
  out += placed.out_offset;
  if (value == T{})
    for_each_row(placed.box, [&](std::int64_t, std::int64_t o, std::int64_t n) {
      std::memset(out + o, 0, static_cast<std::size_t>(n) * sizeof(T));
    });
  else
    for_each_row(placed.box, [&](std::int64_t, std::int64_t o, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) out[o + i] = value;
    });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
