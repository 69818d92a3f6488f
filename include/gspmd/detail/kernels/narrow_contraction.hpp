// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/contraction_plan.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/kernels/contraction.hpp"
#include "gspmd/detail/support/target.hpp"

/// Matrix products of a narrow element type. For a few terms at a time, panels of both operands are converted to the
/// wider type. Then their product is added to the result. So no operand is copied whole.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Converts rows of elements to the wider type. The rows are dense in `to`.
template <class Stored, class T>
void widen_rows(const Stored* from, std::int64_t ld, std::int64_t rows, std::int64_t cols, T* to) {
  if (ld == cols) {
    cols *= rows;
    rows = 1;
  }
  for (std::int64_t i = 0; i < rows; ++i, from += ld, to += cols)
    for_each_index(
        cols, [=](std::int64_t j) __attribute__((always_inline)) { to[j] = static_cast<T>(from[j]); });
}

/// The same as run_contraction, for a plan with panels.
template <class Stored>
void run_narrow_contraction(const contraction_plan& p, const std::int64_t* valid, const void* a, const void* b, void* c,
                            std::byte* scratch, bool adds, bool) {
  using T = element_t<computed_as(dtype_of<Stored>())>;
  if (p.out_elems == 0) return;
  T* const out = static_cast<T*>(c);
  for (const auto letter : p.summed)
    if (valid[letter] <= 0) {
      if (!adds) std::fill_n(out, p.out_elems, T{});
      return;
    }
  const bounded_sums sums(p, valid);
  const int outer = sums.count - 1;  // the last loop is the K of the products
  const auto terms = sums.loops[outer].extent, most = std::min(terms, p.panel);
  T* const first_panel = reinterpret_cast<T*>(scratch) + p.panels_at;
  T* const second_panel = first_panel + p.m * most;
  for (odometer<3> at(p.loops.items, p.loops.count); at.is_there; at.step()) {
    bool accumulates = adds;
    for (odometer<3> sum(sums.loops, outer); sum.is_there; sum.step()) {
      const Stored* const lhs = static_cast<const Stored*>(a) + at.offset[0] + sum.offset[0];
      const Stored* const rhs = static_cast<const Stored*>(b) + at.offset[1] + sum.offset[1];
      const Stored *const first = p.is_swapped ? rhs : lhs, *const second = p.is_swapped ? lhs : rhs;
      for (std::int64_t k = 0; k < terms; k += most) {
        const auto count = std::min(most, terms - k);
        if (p.transpose_first) widen_rows(first + k * p.first_ld, p.first_ld, count, p.m, first_panel);
        else widen_rows(first + k, p.first_ld, p.m, count, first_panel);
        if (p.transpose_second) widen_rows(second + k, p.second_ld, p.n, count, second_panel);
        else widen_rows(second + k * p.second_ld, p.second_ld, count, p.n, second_panel);
        gemm<T>(p.transpose_first, p.transpose_second, p.m, p.n, count, first_panel, p.transpose_first ? p.m : count,
                second_panel, p.transpose_second ? count : p.n, out + at.offset[2], p.out_ld, accumulates);
        accumulates = true;
      }
    }
  }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
