// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Linear algebra: Cholesky factors, triangular and general systems, LU, eigenvalues, tridiagonal systems, and one
/// large matrix that is distributed block-cyclically.
#include "gspmd/linalg/block_cyclic.hpp"  // IWYU pragma: export
#include "gspmd/linalg/eigh.hpp"          // IWYU pragma: export
#include "gspmd/linalg/lu.hpp"            // IWYU pragma: export
#include "gspmd/linalg/solve.hpp"         // IWYU pragma: export
#include "gspmd/linalg/tridiagonal.hpp"   // IWYU pragma: export
