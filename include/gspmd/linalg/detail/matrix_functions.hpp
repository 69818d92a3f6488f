// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/target.hpp"
#include "gspmd/extend/kernel.hpp"

/// Functions of the matrices of a device (linalg/detail/matrix_blocks.hpp).
namespace gspmd::detail {

/// The triangle of a matrix that is used, or of its transpose if `transposed`. If `unit` is set, the diagonal is ones
/// and is not read.
struct matrix_way {
  bool lower = true, transposed = false, unit = false;

  /// Returns true if the first unknown is solved first.
  [[nodiscard]] constexpr bool forwards() const { return lower != transposed; }
};

inline namespace GSPMD_TARGET {

/// Blocks of `rank` dims: a, then the factor of (a + a^H) / 2.
template <class T>
void run_cholesky(int rank, const erased_block* blocks);
/// Blocks a, b, x. `way`: a matrix_way.
template <class T>
void run_triangular_solve(int rank, const void* way, const erased_block* blocks);
/// Blocks a, b, x, and scratch for one matrix.
template <class T>
void run_solve(int rank, const void* way, const erased_block* blocks);
/// The number of systems that are solved together in vector lanes. A division takes the same time for all lanes as for
/// one, and each division waits for the previous one.
inline constexpr int tridiagonal_lanes = 8;
/// Blocks of the diagonals, b, x, and scratch for 2 * tridiagonal_lanes lines.
template <class T>
void run_tridiagonal(int rank, const erased_block* blocks);
/// Blocks a, eigenvectors, eigenvalues, and scratch for one matrix and two more rows.
template <class T>
void run_eigh(int rank, const erased_block* blocks);
/// Blocks a, its factors, and the order of its rows, std::int32_t.
template <class T>
void run_lu(int rank, const erased_block* blocks);
/// Blocks a, the sign, the logarithm, the determinant, and scratch for one matrix.
template <class T>
void run_slogdet(int rank, const erased_block* blocks);

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
