// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/loops.hpp"
#include "gspmd/detail/ir/types.hpp"

/// The description of a reduction of some dims of a dense local array, and its algorithm.
namespace gspmd::detail {

struct reduction_spec {
  extents in;         // allocated extents, dense row-major
  dim_mask dims = 0;  // the reduced dims
  monoid reduced_by = monoid::add;
  friend constexpr bool operator==(const reduction_spec&, const reduction_spec&) = default;
};

/// The algorithm of a reduction. A sequence of adjacent kept dims is one loop. A sequence of reduced dims is one loop
/// if all except the outermost dim are whole. Most reductions are then [outer, reduced, inner], where each part is
/// optional.
struct reduction_plan {
  std::int64_t out_elems = 1;
  inline_vec<std::int8_t, max_rank> reduced;  // dims, in the order of `valid`
  // over in and out; sequences of kept dims are merged, reduced dims are separate
  inline_vec<strided_loop<2>, max_rank> loops;
  inline_vec<std::int8_t, max_rank> loop_dim;  // by loop: the reduced dim, or -1
  bool is_simple = true;                       // at most one sequence of reduced dims
  int first_reduced = -1;                      // index of a loop
  std::int64_t outer = 1, row = 1, inner = 1;  // simple: extents; row: of the reduced dims except the outermost one
  std::int64_t outermost = 1;                  // simple: allocated extent of the outermost reduced dim
};

/// Returns the plan of a reduction.
///   [4,8,16] over dim 1: outer 4, outermost 8, row 1, inner 16
constexpr reduction_plan plan_reduction(const reduction_spec& s) {
  reduction_plan p;
  std::int64_t in_stride = 1;
  inline_vec<strided_loop<2>, max_rank> inside_out;
  inline_vec<std::int8_t, max_rank> dims;
  for (int d = s.in.count - 1; d >= 0; --d) {
    const bool is_reduced = (s.dims & dim_bit(d)) != 0;
    const auto n = s.in[d];
    if (is_reduced) p.reduced.push_back(static_cast<std::int8_t>(d));
    if (n != 1) {
      if (is_reduced) {
        inside_out.push_back({n, {in_stride, 0}});
        dims.push_back(static_cast<std::int8_t>(d));
      } else if (dims.count > 0 && dims[dims.count - 1] < 0) {
        inside_out[inside_out.count - 1].extent *= n;
      } else {
        inside_out.push_back({n, {in_stride, p.out_elems}});
        dims.push_back(-1);
      }
    }
    if (!is_reduced) p.out_elems *= n;
    in_stride *= n;
  }
  int runs = 0;
  for (int i = inside_out.count - 1; i >= 0; --i) {
    const auto n = inside_out[i].extent;
    if (dims[i] < 0) {
      (runs == 0 ? p.outer : p.inner) *= n;
    } else if (p.loop_dim.empty() || p.loop_dim[p.loop_dim.count - 1] < 0) {
      if (++runs == 1) {
        p.first_reduced = p.loops.count;
        p.outermost = n;
      }
    } else {
      p.row *= n;
    }
    p.loops.push_back(inside_out[i]);
    p.loop_dim.push_back(dims[i]);
  }
  p.is_simple = runs <= 1;
  return p;
}

}  // namespace gspmd::detail
