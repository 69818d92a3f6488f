// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/program.hpp"

namespace gspmd {

/// The continuation of a tensor beyond an end of a dim, for shift and stencil. The names are those of NumPy's pad. Of 1 2 3 4:
///
///     zero()          0 0 0 | 1 2 3 4 | 0 0 0
///     constant(7)     7 7 7 | 1 2 3 4 | 7 7 7
///     edge()          1 1 1 | 1 2 3 4 | 4 4 4     SciPy: nearest; the derivative across the end is 0 half a step outside
///     reflect()       4 3 2 | 1 2 3 4 | 3 2 1     SciPy: mirror
///     symmetric()     3 2 1 | 1 2 3 4 | 4 3 2     SciPy: reflect
///     wrap()          2 3 4 | 1 2 3 4 | 1 2 3     SciPy: grid-wrap; periodic
///     values(t)       t t t | 1 2 3 4 | t t t     Dirichlet; for stencil only
class boundary {
 public:
  struct sides;

  static constexpr boundary zero() { return constant(0); }
  static constexpr boundary constant(detail::written_number number) { return {detail::continuation::none, number}; }
  static constexpr boundary edge() { return {detail::continuation::edge, 0}; }
  static constexpr boundary reflect() { return {detail::continuation::reflect, 0}; }
  static constexpr boundary symmetric() { return {detail::continuation::symmetric, 0}; }
  static constexpr boundary wrap() { return {detail::continuation::round, 0}; }
  /// A tensor with the extents of the field, but along the dim: there it has one index, which stands for all that lies beyond, or as
  /// many as the stencil reads beyond the end, in the order in which they lie there.
  static constexpr boundary values(value given) {
    boundary b = zero();
    b.values_ = given;
    b.has_values_ = true;
    return b;
  }

  [[nodiscard]] constexpr detail::continuation beyond() const { return beyond_; }
  [[nodiscard]] constexpr const detail::written_number& number() const { return number_; }
  [[nodiscard]] constexpr bool has_values() const { return has_values_; }
  [[nodiscard]] constexpr value given_values() const { return values_; }

 private:
  constexpr boundary(detail::continuation beyond, detail::written_number number) : beyond_(beyond), number_(number) {}

  detail::continuation beyond_;
  detail::written_number number_;
  bool has_values_ = false;
  value values_;
};

/// The boundaries of a field at both ends of a dim: `{low, high}`, or one boundary for both. Each end stands for itself: a field that goes
/// round has `wrap` at both, and with `wrap` at one of them it goes on there alone with its elements from the other end, as an inflow is
/// fed.
struct boundary::sides {
  boundary low, high;
  constexpr sides(boundary both) : low(both), high(both) {}  // NOLINT: implicit on purpose
  constexpr sides(boundary low_, boundary high_) : low(low_), high(high_) {}
};

}  // namespace gspmd
