// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/kernels/matrix_blocks.hpp"
#include "gspmd/detail/ops/matrix_ops.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

/// Linear systems: many matrices at once, the last two dims of a tensor.
namespace gspmd {

/// How triangular_solve reads a matrix.
struct triangular {
  bool lower = true;           // which triangle; the other one is not read
  bool transposed = false;     // the system of the transposed matrix
  bool unit_diagonal = false;  // the diagonal is ones, and is not read
};

/// The lower triangle l of l l^H = (a + a^H) / 2, with zeros above: a is [..., n, n], float, double, c64 or c128, symmetric or Hermitian and positive
/// definite. A matrix that is not gives NaNs, as in JAX; the others are what they are.
///
/// Global and local: matrices are whole on a device, and the dims before them may be split; then nothing is communicated. A split of the last two dims
/// moves to another dim, or is an error that says so unless the call stands in allow_replication(...). n^3 / 3 flops a matrix, by matrix products, and 4 times as many of complex ones, here and below.
/// Gradients (Murray 2016). Errors: other elements, another shape, more than 8 dims. Source: Golub and Van Loan, 4.2.
///
///     const auto l = cholesky(a);
constexpr value cholesky(value a, location at = location::current()) {
  if (!a.is_valid()) return {};
  auto& g = *a.graph();
  const detail::one_call call(&g, "cholesky", {a.id()});
  return detail::made(detail::add_cholesky(g, a.id(), at), a);
}

/// x of op(a) x = b, with a triangle of a (for the conjugate transpose give conj(a), transposed): a is [..., n, n] and b [..., n, k]; or b is [..., n], with a rank less, and so is x. A zero on the
/// diagonal gives infinities and NaNs.
///
/// Global and local: as cholesky; the columns of b may be split too, and nothing is communicated then either. n^2 flops a column. Gradients.
/// Errors: those of cholesky, and a b that does not fit.
///
///     const auto y = triangular_solve(l, b);                           // l y = b
///     const auto x = triangular_solve(l, y, {.transposed = true});     // l^T x = y: x of a x = b for l = cholesky(a)
constexpr value triangular_solve(value a, value b, triangular how = {}, location at = location::current());

/// x of a x = b, by elimination with partial pivoting: a is [..., n, n] and b [..., n, k], or [..., n]. A matrix without a pivot gives NaNs.
///
/// Global and local: as triangular_solve. 2 n^3 / 3 flops a matrix and 2 n^2 a column; scratch for one matrix. Gradients, which eliminate again.
/// Errors: those of triangular_solve.
///
///     const auto x = solve(a, b);
constexpr value solve(value a, value b, location at = location::current());

/// x of a x = b for symmetric (Hermitian), positive definite a: half of solve's flops. Everything else is as of cholesky and triangular_solve.
///
///     const auto x = solve_positive(a, b);
constexpr value solve_positive(value a, value b, location at = location::current()) {
  const value l = cholesky(a, at);
  const value y = triangular_solve(l, b, {}, at);
  if (!l.is_valid()) return y;
  const value other = detail::made(detail::matrix_terms(*l.graph(), at).conjugated(l.id()), l);
  return triangular_solve(other, y, {.transposed = true}, at);
}

namespace detail {

/// Of right-hand sides that are columns, or one column without the dim for it.
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
