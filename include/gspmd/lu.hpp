// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "gspmd/detail/kernels/matrix_pivots.hpp"
#include "gspmd/detail/ops/lu_ops.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/program.hpp"

/// Factors by elimination, and what is read from them: many matrices at once, the last two dims of a tensor.
namespace gspmd {

/// The factors of a with its rows in another order, by elimination with partial pivoting: l below the diagonal, whose own is ones, and u,
/// [..., n, n]; and that order, [..., n], std::int32_t: row i of l u is row order[i] of a. a is [..., n, n], float, double, c64 or c128. Of a singular matrix u
/// has zeros on its diagonal; what depends on a NaN is NaN.
///
/// Global and local: matrices are whole on a device, and the dims before them may be split; then nothing is communicated. A split of the last two dims
/// moves to another dim, or is an error that says so unless the call stands in allow_replication(...). 2 n^3 / 3 flops a matrix. Gradients, which are
/// not finite by singular matrices. Errors: those of cholesky (linalg.hpp). Source: Golub and Van Loan, 3.4.
///
///     const auto [factors, order] = lu(a);
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

/// The sign of the determinant, -1, 0 or 1, of a complex one det / |det|, and the logarithm of its absolute value, both [...]: 0 and minus
/// infinity of a singular matrix, also beside an infinity; 1 or -1 and infinity where a pivot is infinite (NaN as a complex sign). Of a large
/// matrix the determinant itself overflows.
///
/// Global and local, errors: as lu. 2 n^3 / 3 flops and scratch for one matrix. The gradient of the logarithm is the inverse, transposed, by elimination
/// again: NaN of a singular matrix.
///
///     const auto [sign, log_size] = slogdet(covariance);
constexpr std::pair<value, value> slogdet(value a, location at = location::current());

/// The determinants of matrices, [...]: everything else is as of slogdet.
///
///     const auto volume = det(jacobian);
constexpr value det(value a, location at = location::current());

/// The inverses of matrices, [..., n, n]: solve(a, b) takes a fourth of the flops for one b, and is more accurate. Everything else is as of solve
/// (linalg.hpp), 8 n^3 / 3 flops; a singular matrix gives NaNs.
///
///     const auto precision = inverse(covariance);
constexpr value inverse(value a, location at = location::current()) {
  if (!a.is_valid()) return {};
  auto& g = *a.graph();
  const detail::one_call call(&g, "inverse", {a.id()});
  if (!detail::has_matrices(g, g.nodes[static_cast<std::size_t>(a.id())], "inverse", at)) return detail::made(-1, a);
  const int ones = detail::where_equal(g, a.type(), a.shape(), -1, -1, at).id();
  return detail::made(detail::add_solve(g, a.id(), ones, false, at), a);
}

namespace detail {

/// The result that is so many nodes after the first one.
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
