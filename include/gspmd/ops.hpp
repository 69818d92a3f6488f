// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The operators of the centre. gspmd/index.hpp and gspmd/windows.hpp have further operators.
#include "gspmd/ops/branches.hpp"     // IWYU pragma: export
#include "gspmd/ops/dims.hpp"         // IWYU pragma: export
#include "gspmd/ops/einsum.hpp"       // IWYU pragma: export
#include "gspmd/ops/elementwise.hpp"  // IWYU pragma: export
#include "gspmd/ops/local_op.hpp"     // IWYU pragma: export
#include "gspmd/ops/loops.hpp"        // IWYU pragma: export
#include "gspmd/ops/map.hpp"          // IWYU pragma: export
#include "gspmd/ops/matmul.hpp"       // IWYU pragma: export
#include "gspmd/ops/named.hpp"        // IWYU pragma: export
#include "gspmd/ops/policy.hpp"       // IWYU pragma: export
#include "gspmd/ops/reduce.hpp"       // IWYU pragma: export
#include "gspmd/ops/scan.hpp"         // IWYU pragma: export
#include "gspmd/ops/shape.hpp"        // IWYU pragma: export
