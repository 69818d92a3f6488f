// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sparse matrices whose rows are split over devices, and their products with vectors.
#include "gspmd/sparse/inputs.hpp"    // IWYU pragma: export
#include "gspmd/sparse/layout.hpp"    // IWYU pragma: export
#include "gspmd/sparse/matrix.hpp"    // IWYU pragma: export
#include "gspmd/sparse/multiply.hpp"  // IWYU pragma: export
