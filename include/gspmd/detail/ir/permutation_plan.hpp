// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/loops.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// The description of a permutation of the dims of a dense local array, and its algorithm.
namespace gspmd::detail {

struct permutation_spec {
  extents in;
  inline_vec<std::int8_t, max_rank> permutation;  // dim i of the result is dim permutation[i] of the input
  friend constexpr bool operator==(const permutation_spec&, const permutation_spec&) = default;
};

/// The algorithm of a permutation. Dims of extent 1 are dropped, and dims that stay adjacent are joined. The remaining
/// dims form loops around a copy of rows or a transposition of planes.
struct permutation_plan {
  std::int64_t elems = 1;
  inline_vec<strided_loop<2>, max_rank> loops;  // over in and out
  std::int64_t row = 1;                         // elements that are contiguous in both; 1: transpose planes
  std::int64_t rows = 1, cols = 1;              // of the input's plane
  std::int64_t in_ld = 0, out_ld = 0;
};

/// Returns the plan of a permutation.
///   [2,3,4] by {0,2,1}: a loop of 2 around the transposition of 3 x 4 planes
constexpr permutation_plan plan_permutation(const permutation_spec& s) {
  permutation_plan p;
  std::int64_t in_stride[max_rank]{};
  for (int d = s.in.count - 1; d >= 0; --d) {
    in_stride[d] = p.elems;
    p.elems *= s.in[d];
  }
  // Visit the dims of the result from the innermost one. Join a dim with the previous loop if the input's elements
  // continue with the same stride.
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
  int plane_row = -1;  // the loop whose elements are contiguous in the input
  if (loops[0].stride[0] == 1) {
    p.row = loops[0].extent;
  } else {
    p.rows = loops[0].extent;
    p.in_ld = loops[0].stride[0];
    for (int i = 1; i < loops.count; ++i)
      if (loops[i].stride[0] == 1) plane_row = i;
    p.cols = loops[plane_row].extent;
    p.out_ld = loops[plane_row].stride[1];
  }
  for (int i = loops.count - 1; i >= 1; --i)
    if (i != plane_row) p.loops.push_back(loops[i]);
  return p;
}

}  // namespace gspmd::detail
