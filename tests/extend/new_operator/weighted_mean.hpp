// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/extend/composite.hpp"

// A composite outside of the library. It includes only public headers.
namespace new_operator {

/// Returns sum(w * x) / sum(w) along the dims.
///
/// **Shapes.** `x` and `w` [a, b] -> [a] for `dims` {1}.
/// **Communication.** If a dim of `dims` is split, one all_reduce of both sums. It moves floats for bf16 and f16.
/// **Errors.** The errors of `sum`, and of `x * w`.
constexpr gspmd::value weighted_mean(gspmd::value x, gspmd::value w, gspmd::extend::dim_list dims = {},
                                     gspmd::location at = gspmd::location::current()) {
  using gspmd::operand, gspmd::value;
  const gspmd::extend::one_call call(x.graph(), "weighted_mean", {x.id(), w.id()});
  return gspmd::extend::rounded_once(
      at,
      [&](value a, value b) {
        const value weighted = sum(operand(a, at) * operand(b, at), dims, at);
        return operand(weighted, at) / operand(sum(b, dims, at), at);
      },
      x, w);
}

}  // namespace new_operator
