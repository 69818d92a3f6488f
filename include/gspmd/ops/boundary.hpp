// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/program/program.hpp"

namespace gspmd {

/// The values of a tensor outside of its ends along a dim, for shift and stencil. The names are those of NumPy's pad.
/// For 1 2 3 4:
///
///     zero()          0 0 0 | 1 2 3 4 | 0 0 0
///     constant(7)     7 7 7 | 1 2 3 4 | 7 7 7
///     edge()          1 1 1 | 1 2 3 4 | 4 4 4     SciPy: nearest; the derivative across the end is 0 half a step
///                                                 outside
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
  /// Takes a tensor that has the extents of the field except along the dim of the boundary. If its extent there is 1,
  /// this index is used for all elements outside of the end. Otherwise its extent is the number of indices that the
  /// stencil reads outside of the end, in increasing order.
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

/// The boundaries of a field at both ends of a dim: `{low, high}`, or one boundary for both. The two ends are
/// independent. A periodic field has `wrap` at both ends. With `wrap` at one end only, the field continues at that end
/// with the elements of its other end, for example at an inflow.
struct boundary::sides {
  boundary low, high;
  constexpr sides(boundary both) : low(both), high(both) {}  // NOLINT: implicit on purpose
  constexpr sides(boundary low_, boundary high_) : low(low_), high(high_) {}
};

}  // namespace gspmd
