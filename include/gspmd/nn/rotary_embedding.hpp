// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/as_index.hpp"
#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/nn/detail/floats.hpp"
#include "gspmd/nn/detail/quantity.hpp"
#include "gspmd/ops/dims.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

/// Positions of tokens as rotations of queries and keys.
namespace gspmd {

/// Options of rotary_embedding: the angles and the pairs of elements.
struct rotary_options {
  double base = 10000;         ///< pair i of D / 2 pairs turns by base^(-2i / D) for each position
  std::int64_t first_row = 0;  ///< the position of the first row, if the call has no positions
  bool interleaved = false;    ///< the pairs are elements 2i and 2i + 1, otherwise i and i + D / 2
};

namespace detail {

/// Returns `x` with its pairs rotated by the angles of `positions`, integers whose shape broadcasts to that of `x`
/// without the last dim. Element i of the last dim is read together with the other element of its pair, which a shift
/// moves to index i:
///   pairs i and i + D / 2    x cos + (shift(x, -D / 2) - shift(x, D / 2)) sin, because a shift gives 0 outside of x
///   pairs 2i and 2i + 1      x cos + where(i is even, -shift(x, 1), shift(x, -1)) sin
constexpr value rotated_pairs(value x, value positions, const rotary_options& options, location at) {
  const int last = x.rank() - 1;
  const std::int64_t width = x.shape()[last], half = width / 2;
  const quantity element(iota<std::int64_t>(x, {width}, 0, at), at);
  const operand i = element.as_operand(at), divisor(options.interleaved ? 2 : half > 0 ? half : 1, at);
  const quantity pair = quantity(options.interleaved ? i / divisor : i % divisor, at).as(dtype::f64);
  const quantity frequency = pow(options.base, pair * (-2.0 / static_cast<double>(width > 0 ? width : 1)));
  const quantity angle = quantity(expand_dims(positions, -1, at), at).as(dtype::f64) * frequency;
  const dtype type = composite_type(x.type());
  const quantity cosines = quantity(cos(angle.tensor(), at), at).as(type);
  const quantity sines = quantity(sin(angle.tensor(), at), at).as(type);

  const quantity wide = quantity(x, at).wide();
  const auto moved = [&](std::int64_t offset) { return quantity(shift(wide.tensor(), offset, along(last), at), at); };
  if (!options.interleaved) return (wide * cosines + (moved(-half) - moved(half)) * sines).as(x.type()).tensor();
  const quantity is_even(equal(operand(i % divisor, at), operand(0, at)), at);
  const quantity other = where(is_even, quantity(negative(moved(1).tensor(), at), at), moved(-1));
  return (wide * cosines + other * sines).as(x.type()).tensor();
}

constexpr bool can_rotate(value x, location at) {
  if (!has_floats(x, "rotary_embedding", at)) return false;
  if (x.rank() > 0 && x.shape()[x.rank() - 1] % 2 == 0) return true;
  x.graph()->fail(at, "rotary_embedding", mistake::extent,
                  text("the operand is ") << shape_text(x.shape())
                                          << "; its last dim must have an even extent, because pairs are "
                                          << "rotated");
  return false;
}

}  // namespace detail

/// Returns `x` with pairs of elements of its last dim rotated by an angle that grows with the position of the row
/// (RoPE). Rows are the second-to-last dim, and have the positions first_row, first_row + 1, and so on.
///
/// Angles are computed in double. bf16 and f16 are rotated as float and rounded once (ops/composite.hpp).
///
/// **Shapes.** x [..., T, D] -> [..., T, D]. q and k of attention have these shapes.
/// **Communication.** None if the last dim is not split. Otherwise devices send the elements of a pair that is not on
/// one device by collective_permute.
/// **Errors.** Compile error `type` if the elements are not real floats, `extent` if D is odd, `rank` if `x` has fewer
/// than two dims.
/// **Example.**
///     auto y = attention(rotary_embedding(q), rotary_embedding(k), v, {.causal = true});
/// **Source.** Su et al., RoFormer, 2021, section 3.4.2.
constexpr value rotary_embedding(value x, rotary_options options = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  const detail::one_call call(x.graph(), "rotary_embedding", {x.id()});
  if (!detail::can_rotate(x, at)) return detail::made(-1, x);
  if (x.rank() < 2)
    return detail::made(x.graph()->fail(at, "rotary_embedding", detail::mistake::rank,
                                        detail::text("the operand is ")
                                            << detail::shape_text(x.shape()) << " and has no dim of rows; pass the positions"),
                        x);
  const value rows = iota<std::int64_t>(x, {x.shape()[x.rank() - 2]}, 0, at);
  return detail::rotated_pairs(x, operand(rows, at) + operand(options.first_row, at), options, at);
}

/// The same with the position of each row. `positions` are integers. Their shape broadcasts to that of `x` without the
/// last dim, as in NumPy.
///
/// **Errors.** Compile error `type` if `positions` are not integers, `extent` if their shape does not broadcast.
/// **Example.**
///     auto q = rotary_embedding(query, position);              // one token: position is an integer of rank 0
constexpr value rotary_embedding(value x, value positions, rotary_options options = {}, location at = location::current()) {
  if (!x.is_valid() || !positions.is_valid()) return {};
  const detail::one_call call(x.graph(), "rotary_embedding", {x.id(), positions.id()});
  if (!detail::can_rotate(x, at)) return detail::made(-1, x);
  auto& g = *x.graph();
  bool fits = positions.rank() < x.rank();
  for (int d = 1; fits && d <= positions.rank(); ++d) {
    const auto own = positions.shape()[positions.rank() - d];
    fits = own == 1 || own == x.shape()[x.rank() - 1 - d];
  }
  if (!fits || !detail::may_be_index(positions.type()))
    return detail::made(
        g.fail(at, "rotary_embedding", fits ? detail::mistake::type : detail::mistake::extent,
               detail::text("the positions are ")
                   << detail::name_of(positions.type()) << detail::shape_text(positions.shape()) << " and the operand is "
                   << detail::shape_text(x.shape()) << "; positions are integers, one for each row"),
        x);
  return detail::rotated_pairs(x, positions, options, at);
}

}  // namespace gspmd
