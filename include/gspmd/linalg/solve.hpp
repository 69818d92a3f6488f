// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/linalg/detail/matrix_blocks.hpp"
#include "gspmd/linalg/detail/matrix_ops.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

/// Linear systems of many matrices. A matrix is the last two dims of a tensor.
namespace gspmd {

/// Options of triangular_solve.
struct triangular {
  bool lower = true;           // true: reads the lower triangle only; false: the upper one only
  bool transposed = false;     // true: solves the system of the transposed matrix
  bool unit_diagonal = false;  // true: the diagonal is 1, and is not read
};

/// Returns the lower triangle l of l l^H = (a + a^H) / 2, with zeros above the diagonal.
///
/// `a` is symmetric or Hermitian, and positive definite. A matrix that is not positive definite gives NaNs, as in JAX;
/// other matrices are not affected. A matrix costs n^3 / 3 flops, mostly by matrix products. Complex matrices cost four
/// times the flops of real ones, in all functions of this header. The gradient is that of Murray (2016).
///
/// **Shapes.** a [..., n, n] -> [..., n, n]. The elements are float, double, c64 or c128.
/// **Communication.** None if only dims before the last two are split. A split of the last two dims moves to another
/// dim. If no other dim can take it, the program is an error unless the call is in allow_replication(...).
/// **Errors.** `a` has another element type, another shape, or more than 8 dims.
/// **Example.** const auto l = cholesky(a);
/// **Source.** Golub and Van Loan, 4.2.
constexpr value cholesky(value a, location at = location::current()) {
  if (!a.is_valid()) return {};
  auto& g = *a.graph();
  const detail::one_call call(&g, "cholesky", {a.id()});
  return detail::made(detail::add_cholesky(g, a.id(), at), a);
}

/// Returns x of op(a) x = b, and reads one triangle of `a`.
///
/// For the conjugate transpose pass conj(a) and `.transposed = true`. A zero on the diagonal gives infinities and NaNs.
/// A column costs n^2 flops. There are gradients.
///
/// **Shapes.** a [..., n, n], b [..., n, k] -> x [..., n, k], or b [..., n] -> x [..., n].
/// **Communication.** The same as for cholesky. The columns of b may be split too, without communication.
/// **Errors.** Those of cholesky, and the shape of b does not fit.
/// **Example.**
///
///     const auto y = triangular_solve(l, b);                           // l y = b
///     const auto x = triangular_solve(l, y, {.transposed = true});     // l^T x = y: x of a x = b for l = cholesky(a)
constexpr value triangular_solve(value a, value b, triangular how = {}, location at = location::current());

/// Returns x of a x = b, by elimination with partial pivoting.
///
/// A matrix without a pivot gives NaNs. A matrix costs 2 n^3 / 3 flops, and a column 2 n^2. A device needs scratch
/// memory for one matrix. Gradients repeat the elimination.
///
/// **Shapes.** The same as for triangular_solve.
/// **Communication.** The same as for triangular_solve.
/// **Errors.** Those of triangular_solve.
/// **Example.** const auto x = solve(a, b);
constexpr value solve(value a, value b, location at = location::current());

/// Returns x of a x = b for symmetric or Hermitian, positive definite `a`, with half of the flops of `solve`.
///
/// Shapes, communication and errors are those of cholesky and triangular_solve.
///
/// **Example.** const auto x = solve_positive(a, b);
constexpr value solve_positive(value a, value b, location at = location::current()) {
  const value l = cholesky(a, at);
  const value y = triangular_solve(l, b, {}, at);
  if (!l.is_valid()) return y;
  const value other = detail::made(detail::matrix_terms(*l.graph(), at).conjugated(l.id()), l);
  return triangular_solve(other, y, {.transposed = true}, at);
}

namespace detail {

/// Calls `solve` with columns. If b is a single column without a dim for it, the dim is added for the call:
///
///     a [8,4,4], b [8,4]   ->   solve(a, b [8,4,1]), result [8,4]
template <class Solve>
constexpr value solved(value a, value b, const char* op, location at, Solve solve) {
  if (!a.is_valid() || !b.is_valid()) return {};
  auto& g = *a.graph();
  const one_call call(&g, op, {a.id(), b.id()});
  if (b.rank() + 1 != a.rank()) return made(solve(g, a.id(), b.id(), at), b);
  extents with_column = b.shape();
  with_column.push_back(1);
  const extents without = b.shape();
  const value column = reshape(b, with_column, at);
  const value x = made(solve(g, a.id(), column.id(), at), column);
  return x.id() < 0 ? made(-1, b) : reshape(x, without, at);
}

}  // namespace detail

constexpr value triangular_solve(value a, value b, triangular how, location at) {
  return detail::solved(a, b, "triangular_solve", at, [&](detail::graph& g, int matrices, int sides, location where) {
    return detail::add_triangular_solve(g, matrices, sides, {how.lower, how.transposed, how.unit_diagonal}, where);
  });
}
constexpr value solve(value a, value b, location at) {
  return detail::solved(a, b, "solve", at, [](detail::graph& g, int matrices, int sides, location where) {
    return detail::add_solve(g, matrices, sides, false, where);
  });
}

}  // namespace gspmd
