// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/index/random.hpp"
#include "gspmd/nn/detail/floats.hpp"
#include "gspmd/ops/composite.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

namespace gspmd {

/// Returns `x` with each element replaced by 0 with the probability `rate`, and the other elements divided by 1 - rate.
/// The mean of the result is that of `x`. The gradient has the same zeros.
///
/// `key` decides which elements become 0 (index/random.hpp): the same ones on every mesh and with every sharding. Use
/// random::fold_in for a new key in each layer and iteration. If `rate` is 0, the result is `x`.
///
/// **Communication.** None.
/// **Errors.** Compile error `type` if the elements are not real floats or `key` is not a u64 scalar, `number` if
/// `rate` is not from 0 to 1.
/// **Example.**
///     h = dropout(random::fold_in(key, layer), h, 0.1);
/// **Source.** Srivastava et al., Dropout, 2014.
constexpr value dropout(value key, value x, double rate, location at = location::current()) {
  if (!key.is_valid() || !x.is_valid()) return {};
  const detail::one_call call(x.graph(), "dropout", {key.id(), x.id()});
  if (!detail::has_floats(x, "dropout", at)) return detail::made(-1, x);
  if (!(rate >= 0 && rate <= 1))
    return detail::made(x.graph()->fail(at, "dropout", detail::mistake::number,
                                        detail::text("the rate is") << detail::number_text(rate) << "; it is from 0 to 1"),
                        x);
  if (!random::drawing::is_key(key, "dropout", at)) return detail::made(-1, x);
  if (rate == 0) return x;
  if (rate == 1) return zeros_like(x, at);
  const value is_kept = random::bernoulli(key, operand(1 - rate, at), x.shape(), at);
  return detail::rounded_once(
      at,
      [&](value wide) {
        return where(operand(is_kept, at), operand(operand(wide, at) / operand(1 - rate, at), at), operand(0, at));
      },
      x);
}

}  // namespace gspmd
