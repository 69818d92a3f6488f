// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/linalg/detail/lu_ops.hpp"
#include "gspmd/linalg/detail/matrix_pivots.hpp"
#include "gspmd/program/program.hpp"

/// LU factors, determinants and inverses of many matrices. A matrix is the last two dims of a tensor.
namespace gspmd {

/// Returns the factors l and u of `a` in one matrix, and the order of the rows, by elimination with partial pivoting.
///
/// Row i of l u is row order[i] of `a`. l is below the diagonal, and u is the rest. The diagonal of l is 1 and is not
/// stored. If `a` is singular, u has zeros on its diagonal. Elements that depend on a NaN are NaN.
///
/// A matrix costs 2 n^3 / 3 flops. There are gradients; they are not finite if the matrix is singular.
///
/// **Shapes.** a [..., n, n] -> factors [..., n, n], order [..., n] of std::int32_t. `a` is float, double, c64 or c128.
/// **Communication.** The same as for cholesky (solve.hpp).
/// **Errors.** Those of cholesky.
/// **Example.** const auto [factors, order] = lu(a);
/// **Source.** Golub and Van Loan, 3.4.
constexpr std::pair<value, value> lu(value a, location at = location::current()) {
  if (!a.is_valid()) return {};
  auto& g = *a.graph();
  const detail::one_call call(&g, "lu", {a.id()});
  detail::extents rows = a.shape();
  const int id = detail::add_lu(g, a.id(), at);
  if (id >= 0) return {value{&g, id}, value{&g, id + 1}};
  if (rows.count > 0) rows.pop_back();
  return {detail::made(-1, a), detail::made(g, -1, dtype::s32, rows)};
}

/// Returns the sign of the determinant and the logarithm of its absolute value. The determinant of a large matrix may
/// overflow; its logarithm does not.
///
/// | matrix | sign | logarithm |
/// |---|---|---|
/// | real | -1 or 1 | log abs(det) |
/// | complex | det / abs(det) | log abs(det) |
/// | singular, also with infinite pivots | 0 | minus infinity |
/// | an infinite pivot | -1 or 1; NaN if complex | infinity |
///
/// A matrix costs 2 n^3 / 3 flops. A device needs scratch memory for one matrix. The gradient of the logarithm is the
/// transposed inverse, by a second elimination. It is NaN if the matrix is singular.
///
/// **Shapes.** a [..., n, n] -> sign [...], logarithm [...].
/// **Communication.** The same as for lu.
/// **Errors.** Those of lu.
/// **Example.** const auto [sign, log_size] = slogdet(covariance);
constexpr std::pair<value, value> slogdet(value a, location at = location::current());

/// Returns the determinants of matrices: a [..., n, n] -> [...]. Flops, communication and errors are those of slogdet.
///
/// **Example.** const auto volume = det(jacobian);
constexpr value det(value a, location at = location::current());

/// Returns the inverses of matrices: a [..., n, n] -> [..., n, n]. A singular matrix gives NaNs.
///
/// A matrix costs 8 n^3 / 3 flops. For one right-hand side, `solve(a, b)` takes a fourth of the flops and is more
/// accurate. Communication and errors are those of `solve` (solve.hpp).
///
/// **Example.** const auto precision = inv(covariance);
constexpr value inv(value a, location at = location::current()) {
  if (!a.is_valid()) return {};
  auto& g = *a.graph();
  const detail::one_call call(&g, "inv", {a.id()});
  if (!detail::has_matrices(g, g.nodes[static_cast<std::size_t>(a.id())], "inv", at)) return detail::made(-1, a);
  const int ones = detail::where_equal(g, a.type(), a.shape(), -1, -1, at).id();
  return detail::made(detail::add_solve(g, a.id(), ones, false, at), a);
}

namespace detail {

/// Returns the result that is `result` nodes after node `id`, without the last two dims of `shape`. If id is -1, the
/// result is invalid but has this type and shape.
constexpr value of_determinants(graph& g, int id, int result, dtype type, extents shape) {
  for (int d = 0; d < 2 && shape.count > 0; ++d) shape.pop_back();
  return made(g, id < 0 ? -1 : id + result, type, shape);
}

}  // namespace detail

constexpr std::pair<value, value> slogdet(value a, location at) {
  if (!a.is_valid()) return {};
  auto& g = *a.graph();
  const detail::one_call call(&g, "slogdet", {a.id()});
  const auto type = a.type();
  const detail::extents shape = a.shape();
  const int id = detail::add_slogdet(g, a.id(), "slogdet", at);
  return {detail::of_determinants(g, id, 0, type, shape), detail::of_determinants(g, id, 1, detail::part_of(type), shape)};
}
constexpr value det(value a, location at) {
  if (!a.is_valid()) return {};
  auto& g = *a.graph();
  const detail::one_call call(&g, "det", {a.id()});
  const auto type = a.type();
  const detail::extents shape = a.shape();
  return detail::of_determinants(g, detail::add_slogdet(g, a.id(), "det", at), 2, type, shape);
}

}  // namespace gspmd
