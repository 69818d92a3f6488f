// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/linalg/detail/eigh_op.hpp"
#include "gspmd/linalg/detail/symmetric_eigen.hpp"
#include "gspmd/ops/elementwise.hpp"

namespace gspmd {

/// Returns the eigenvalues w of (a + a^H) / 2, real and ascending, and the eigenvectors, which are the columns of v.
///
/// The signs (phases) of the vectors are not specified. If values are equal, neither are their vectors. A matrix with
/// an infinity or a NaN gives NaNs; other matrices are not affected.
///
/// A matrix costs 28 n^3 / 3 flops, and four times this if it is complex, by Householder's reflections and QL steps. A
/// device needs scratch memory for one matrix.
///
/// Gradients are those of Giles (2008). The gradient by the vectors is not finite if two values are equal, as in JAX
/// and torch. If the vectors are complex, the gradient is right for functions that do not depend on the phases.
///
/// **Shapes.** a [..., n, n] -> w [..., n], v [..., n, n]. The elements are float, double, c64 or c128.
/// **Communication.** None if only dims before the last two are split. A split of the last two dims moves to another
/// dim. If no other dim can take it, the program is an error unless the call is in allow_replication(...).
/// **Errors.** Those of cholesky (solve.hpp).
/// **Example.** const auto [w, v] = eigh(covariance);
/// **Source.** Golub and Van Loan, 8.3.
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
    id = detail::add_eigh(g, (0.5 * a + 0.5 * other).id(), at);  // halved first: large sums could overflow
  }
  if (id >= 0) return {value{&g, id + 1}, value{&g, id}};
  return {detail::made(g, -1, detail::part_of(type), of_values), detail::made(g, -1, type, shape)};
}

}  // namespace gspmd
