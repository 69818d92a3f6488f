// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "gspmd/detail/exec/lanes.hpp"
#include "gspmd/detail/exec/loops.hpp"
#include "gspmd/detail/exec/spec.hpp"
#include "gspmd/detail/exec/target.hpp"
#include "gspmd/detail/exec/transpose_block.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// Permutation of the dims of a dense local array.
namespace gspmd::detail {

struct permutation_spec {
  extents in;
  inline_vec<std::int8_t, max_rank> permutation;  // dim i of the result is dim permutation[i] of the input
  friend constexpr bool operator==(const permutation_spec&, const permutation_spec&) = default;
};

/// How a permutation is done: dims of extent 1 are left out and dims that stay neighbours are one. What remains either
/// copies rows or transposes planes, inside loops.
struct permutation_plan {
  std::int64_t elems = 1;
  inline_vec<strided_loop<2>, max_rank> loops;  // over in and out
  std::int64_t row = 1;                         // elements that are neighbours in both; 1: transpose planes
  std::int64_t rows = 1, columns = 1;           // of the input's plane
  std::int64_t in_ld = 0, out_ld = 0;
};

constexpr permutation_plan plan_permutation(const permutation_spec& s) {
  permutation_plan p;
  std::int64_t in_stride[max_rank]{};
  for (int d = s.in.count - 1; d >= 0; --d) {
    in_stride[d] = p.elems;
    p.elems *= s.in[d];
  }
  // Of the result, inside out: merge with the previous loop when the input's elements follow each other likewise.
  inline_vec<strided_loop<2>, max_rank> loops;
  std::int64_t out_stride = 1;
  for (int i = s.permutation.count - 1; i >= 0; --i) {
    const int d = s.permutation[i];
    const auto n = s.in[d];
    if (n == 1) continue;
    if (!loops.empty() && in_stride[d] == loops[loops.count - 1].stride[0] * loops[loops.count - 1].extent)
      loops[loops.count - 1].extent *= n;
    else loops.push_back({n, {in_stride[d], out_stride}});
    out_stride *= n;
  }
  if (p.elems == 0 || loops.empty()) {
    p.row = p.elems;
    return p;
  }
  int plane_row = -1;  // the loop whose elements are neighbours in the input
  if (loops[0].stride[0] == 1) {
    p.row = loops[0].extent;
  } else {
    p.rows = loops[0].extent;
    p.in_ld = loops[0].stride[0];
    for (int i = 1; i < loops.count; ++i)
      if (loops[i].stride[0] == 1) plane_row = i;
    p.columns = loops[plane_row].extent;
    p.out_ld = loops[plane_row].stride[1];
  }
  for (int i = loops.count - 1; i >= 1; --i)
    if (i != plane_row) p.loops.push_back(loops[i]);
  return p;
}

}  // namespace gspmd::detail

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

template <int Bytes, class T>
inline void copy_rows(const permutation_plan& p, const T* in, T* out) {
  const auto bytes = Bytes > 0 ? static_cast<std::size_t>(Bytes) : static_cast<std::size_t>(p.row) * sizeof(T);
  for_each_offset<2>(p.loops.items, p.loops.count, [&](const std::int64_t* at) { std::memcpy(out + at[1], in + at[0], bytes); });
}

/// Writes `in` with its dims permuted to `out`; both are dense and row-major and do not overlap.
template <class T, class Spec>
void permute(const Spec& spec, const T* in, T* out) {
  with_derived<plan_permutation>(spec, [&](auto plan) {
    const permutation_plan& p = plan();
    if (p.elems == 0) return;
    if (p.row > 1 || p.columns == 1) {
      switch (p.row * static_cast<std::int64_t>(sizeof(T))) {  // short rows are one or two moves each, not calls
        case 2: return copy_rows<2>(p, in, out);
        case 4: return copy_rows<4>(p, in, out);
        case 8: return copy_rows<8>(p, in, out);
        case 16: return copy_rows<16>(p, in, out);
        case 32: return copy_rows<32>(p, in, out);
        case 64: return copy_rows<64>(p, in, out);
        default: return copy_rows<0>(p, in, out);
      }
    }
    // Past the caches, lines that are written whole need not be read first.
    const bool streams = p.elems * static_cast<std::int64_t>(sizeof(T)) >= stream_from_bytes;
    for_each_offset<2>(p.loops.items, p.loops.count, [&](const std::int64_t* at) {
      transpose_plane(p.rows, p.columns, in + at[0], p.in_ld, out + at[1], p.out_ld, streams);
    });
    if (streams) fence_streams();
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
