// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/local_function.hpp"
#include "gspmd/detail/support/target.hpp"

/// Functions of the matrices of a device (kernels/matrix_blocks.hpp).
namespace gspmd::detail {

/// Which triangle of a matrix is meant, of the transposed one if `transposed`, and whether its diagonal is ones, which are not read.
struct matrix_way {
  bool lower = true, transposed = false, unit = false;

  /// Whether the first unknown is solved first.
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
/// Systems that are solved at once, beside each other: a division takes as long for all as for one, and each waits for the one before it.
inline constexpr int tridiagonal_lanes = 8;
/// Blocks of the diagonals, b, x, and scratch for twice as many lines.
template <class T>
void run_tridiagonal(int rank, const erased_block* blocks);
/// Blocks a, eigenvectors, eigenvalues, and scratch for one matrix and two rows more.
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
