// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/ops/traced_body.hpp"
#include "gspmd/staggered/detail/align_fields.hpp"

namespace gspmd {

/// Returns f(fields...) for staggered fields: slices, paddings and concatenations make extents of one dim differ by up
/// to 8. Yee's grid, for example, has [n+1, m+1], [n+1, m] and [n, m+1].
///
/// The plan gives such dims a common extent. Then a slice that elementwise operators read becomes a read at an offset,
/// like a shift. A padding or a concatenation becomes a choice by index in the loop that reads or computes it. Values
/// have the bits and the shapes of f(fields...).
///
/// Elementwise operators, loops (fori_loop, while_loop, scan) and movements by one offset along a dim keep the common
/// extent. Operands and results of other operators, inputs and outputs are padded and cut. That costs a copy, and a
/// message to the neighbours for each split dim; for loop-carried values it happens once for the whole loop. Therefore
/// put many steps into one program.
/// The fields get a common extent only if that moves fewer elements than the slices would. Otherwise, and in programs
/// of the explicit and the manual mode, the result is plain f(fields...).
///
/// **Communication.** If a dim is split, halos as for shifts (`stencil`). A value that is padded or cut moves by at
/// most the difference of the extents, times the number of the part.
/// **Errors.** Compile error, or gspmd::error at run time: no slice, padding or concatenation in f changes an extent by
/// 1 to 8.
/// **Example.**
///
///     auto [e, hx, hy] = staggered([](value e, value hx, value hy) {
///       // 2 messages a step for each split dim, as for fields of one shape
///       return fori_loop(100, yee_step, e, hx, hy);
///     }, e0, hx0, hy0);
template <class F, class... Fields>
constexpr auto staggered(F f, const Fields&... fields) {
  static_assert(
      (detail::is_values<Fields> && ...),
      "gspmd: staggered: the arguments of the function are values, or tuples or structs of values; capture other arguments");
  if (detail::graph* const g = detail::graph_of(fields...); g != nullptr) extend::add_pass<detail::align_fields_pass>(*g);
  return f(fields...);
}

}  // namespace gspmd
