// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "gspmd/detail/ir/loops.hpp"
#include "gspmd/detail/ir/permutation_plan.hpp"
#include "gspmd/detail/kernels/permute.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/target.hpp"

/// Copies of elements between two buffers that have a stride for each dim.
namespace gspmd::detail {

/// Returns the strides of a dense row-major array.
constexpr extents row_major_strides(const extents& shape) {
  extents strides(shape.count, 1);
  for (int d = shape.count - 2; d >= 0; --d) strides[d] = strides[d + 1] * shape[d + 1];
  return strides;
}

/// Returns true if the elements are contiguous, the last dim fastest. Strides of dims of extent 1 are ignored.
constexpr bool is_dense_row_major(const extents& shape, const extents& strides) {
  if (elements(shape) == 0) return true;
  std::int64_t next = 1;
  for (int d = shape.count - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    if (strides[d] != next) return false;
    next *= shape[d];
  }
  return true;
}

/// Plans the loops of a strided copy. The loops are ordered by the strides of `to`, so that consecutive writes are
/// close to each other. A plan has one of three forms: rows that are contiguous in both buffers, planes, or single
/// elements. A plane has contiguous rows in one buffer and contiguous columns in the other. Example: [2,3] from strides
/// {3, 1} to {1, 2} is one plane with rows 2, cols 3, in_ld 3, out_ld 2.
constexpr permutation_plan plan_strided_copy(const extents& shape, const extents& from, const extents& to) {
  permutation_plan p;
  p.elems = elements(shape);
  inline_vec<strided_loop<2>, max_rank> sorted, loops;
  for (int d = shape.count - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    sorted.push_back({shape[d], {from[d], to[d]}});
    for (int i = sorted.count - 1; i > 0 && sorted[i].stride[1] < sorted[i - 1].stride[1]; --i)
      std::swap(sorted[i], sorted[i - 1]);
  }
  for (const auto& loop : sorted) {
    const bool goes_on = !loops.empty() && loop.stride[0] == loops[loops.count - 1].stride[0] * loops[loops.count - 1].extent &&
                         loop.stride[1] == loops[loops.count - 1].stride[1] * loops[loops.count - 1].extent;
    if (goes_on) loops[loops.count - 1].extent *= loop.extent;
    else loops.push_back(loop);
  }
  if (p.elems == 0 || loops.empty()) {
    p.row = p.elems;
    return p;
  }
  int first = 0, plane_row = -1;  // the first loop that stays a loop; the loop over a plane's rows
  if (loops[0].stride[1] == 1 && loops[0].stride[0] == 1) {
    p.row = loops[0].extent;
    first = 1;
  } else if (loops[0].stride[1] == 1) {
    for (int i = 1; i < loops.count; ++i)
      if (loops[i].stride[0] == 1) plane_row = i;
    if (plane_row > 0) {
      p.rows = loops[0].extent;
      p.in_ld = loops[0].stride[0];
      p.cols = loops[plane_row].extent;
      p.out_ld = loops[plane_row].stride[1];
      first = 1;
    }
  }
  for (int i = loops.count - 1; i >= first; --i)
    if (i != plane_row) p.loops.push_back(loops[i]);
  return p;
}

inline namespace GSPMD_TARGET {

template <class Bits>
void copy_by_strides(const permutation_plan& p, const void* from, void* to) {
  if (p.row != 1 || p.cols != 1 || p.loops.empty()) return permute_by<Bits>(p, from, to);
  constexpr std::int64_t bytes = sizeof(Bits);
  const auto last = p.loops[p.loops.count - 1];
  const auto step = last.stride[0] * bytes, out_step = last.stride[1] * bytes;
  for (odometer<2> at(p.loops.items, p.loops.count - 1); at.is_there; at.step()) {
    const auto* in = static_cast<const std::byte*>(from) + at.offset[0] * bytes;
    auto* out = static_cast<std::byte*>(to) + at.offset[1] * bytes;
    for (std::int64_t i = 0; i < last.extent; ++i, in += step, out += out_step) std::memcpy(out, in, bytes);
  }
}

/// Copies elements of `elem_bytes` bytes. Strides are in elements. The two buffers must not overlap.
template <class = once>
void copy_strided(extents shape, std::int64_t elem_bytes, const void* from, extents from_strides, void* to, extents to_strides) {
  const std::int64_t word = elem_bytes % 8 == 0 ? 8 : elem_bytes % 4 == 0 ? 4 : elem_bytes % 2 == 0 ? 2 : 1;
  if (const auto words = elem_bytes / word; words > 1) {
    if (shape.count == max_rank) {  // a dim of words would exceed max_rank: copy index by index of the first dim
      for (std::int64_t i = 0; i < shape[0]; ++i) {
        extents rest, rest_from, rest_to;
        for (int d = 1; d < shape.count; ++d) {
          rest.push_back(shape[d]);
          rest_from.push_back(from_strides[d]);
          rest_to.push_back(to_strides[d]);
        }
        copy_strided(rest, elem_bytes, static_cast<const std::byte*>(from) + i * from_strides[0] * elem_bytes, rest_from,
                     static_cast<std::byte*>(to) + i * to_strides[0] * elem_bytes, rest_to);
      }
      return;
    }
    for (auto* strides : {&from_strides, &to_strides}) {
      for (auto& s : *strides) s *= words;
      strides->push_back(1);
    }
    shape.push_back(words);
  }
  const auto p = plan_strided_copy(shape, from_strides, to_strides);
  switch (word) {
    case 8: return copy_by_strides<double>(p, from, to);
    case 4: return copy_by_strides<float>(p, from, to);
    case 2: return copy_by_strides<std::uint16_t>(p, from, to);
    default: return copy_by_strides<std::uint8_t>(p, from, to);
  }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
