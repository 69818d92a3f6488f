// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/align_fields.hpp"
#include "gspmd/ops/traced_body.hpp"

namespace gspmd {

/// f(fields...), whose values are staggered: extents of one dim differ by up to 8, as slices, paddings and concatenations make
/// them (Yee's grid has [n+1, m+1], [n+1, m] and [n, m+1]). The plan gives such dims one extent. A slice that is read by elementwise operators then is a
/// read at an offset, as a shift is, and a padding or a concatenation a choice by index in the loop that reads or computes it.
///
///     auto [e, hx, hy] = staggered([](value e, value hx, value hy) {
///       return fori_loop(100, yee_step, e, hx, hy);      // 2 messages a step for each split dim, as for fields of one shape
///     }, e0, hx0, hy0);
///
/// Values are those of f(fields...), bit for bit, and so are their shapes. Elementwise operators, loops (fori_loop, while_loop, scan) and what moves
/// elements by one offset along a dim keep the extent; what any other operator reads or makes, as inputs and outputs, is padded and cut:
/// a copy and a message with the neighbours for each dim that is split, once for what a loop carries. So many steps belong into
/// one program. The fields are staggered only where all of that moves fewer elements than the slices would; elsewhere, and in programs of the explicit
/// and the manual mode, this is f(fields...).
///
/// Communication: where a dim is split, margins as for shifts (`stencil`), and of what is padded or cut at most as many indices as the extents
/// differ by, times the part's number. Errors: no slice, padding or concatenation in it is 1 to 8 elements longer or shorter than what it is made
/// of.
template <class F, class... Fields>
constexpr auto staggered(F f, const Fields&... fields) {
  static_assert(
      (detail::is_values<Fields> && ...),
      "gspmd: staggered: the arguments of the function are values, or tuples or structs of values; capture what is none");
  if (detail::graph* const g = detail::graph_of(fields...); g != nullptr) g->align_fields = &detail::align_fields;
  return f(fields...);
}

}  // namespace gspmd
