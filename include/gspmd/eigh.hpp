// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "gspmd/detail/kernels/symmetric_eigen.hpp"
#include "gspmd/detail/ops/eigh_op.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/ops/elementwise.hpp"

namespace gspmd {

/// The eigenvalues w of (a + a^H) / 2 in ascending order, [..., n], which are real, and its eigenvectors, the columns of v, [..., n, n]: a is
/// [..., n, n], float, double, c64 or c128. The signs (phases) of the vectors, and which ones belong to equal values, are whatever the method finds. A matrix with an infinity or a NaN
/// gives NaNs, the others what they give.
///
/// Global and local: matrices are whole on a device, and the dims before them may be split; then nothing is communicated. A split of the last two dims
/// moves to another dim, or is an error that says so unless the call stands in allow_replication(...). 28 n^3 / 3 flops a matrix (4 times as many of complex ones), by Householder's
/// reflections and QL steps; scratch for one matrix. Gradients (Giles 2008); of what vectors are read for, they are not finite where two values
/// are equal, as in JAX and torch, and of complex ones they are those of functions that do not depend on phases. Errors: those of cholesky (linalg.hpp). Source: Golub and Van Loan, 8.3.
///
///     const auto [w, v] = eigh(covariance);
constexpr std::pair<value, value> eigh(value a, location at = location::current()) {
  if (!a.is_valid()) return {};
  auto& g = *a.graph();
  const detail::one_call call(&g, "eigh", {a.id()});
  const auto type = a.type();
  const detail::extents shape = a.shape();
  detail::extents of_values = shape;
  if (of_values.count > 0) of_values.pop_back();
  int id = -1;
  if (detail::has_matrices(g, g.nodes[static_cast<std::size_t>(a.id())], "eigh", at)) {
    const value other{&g, detail::matrix_terms(g, at).adjoint(a.id())};
    id = detail::add_eigh(g, (0.5 * a + 0.5 * other).id(), at);  // halves: the sum of large numbers would overflow
  }
  if (id >= 0) return {value{&g, id + 1}, value{&g, id}};
  return {detail::made(g, -1, detail::part_of(type), of_values), detail::made(g, -1, type, shape)};
}

}  // namespace gspmd
