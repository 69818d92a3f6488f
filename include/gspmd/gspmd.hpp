// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The header for compiled programs: gspmd/core.hpp, all operators of gspmd/windows.hpp and gspmd/index.hpp, `explain`,
/// budgets, mesh views.
///
/// Include separately:
///  - gspmd/comm/mpi.hpp: the MPI backend
///  - gspmd/dynamic/compile.hpp: meshes and shapes that are known at run time
///  - gspmd/modes.hpp: the explicit and the manual mode
///  - gspmd/layouts.hpp: other notations and placements of tensors
///  - gspmd/report.hpp: plans as text and pictures, and their times
///  - gspmd/plan/network.hpp, search.hpp, overlap.hpp: networks, and two options of plans

#include "gspmd/error.hpp"

#ifdef __cpp_exceptions  // Clang 16 continues after the fatal error of language.hpp, and would crash here

// Included first, so that errors in these headers have a short include context.
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/foreign_names.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/program/row_major.hpp"

#include "gspmd/core.hpp"

#include "gspmd/index.hpp"
#include "gspmd/layouts/mesh_views.hpp"
#include "gspmd/ops/local_op.hpp"
#include "gspmd/plan/within_budget.hpp"
#include "gspmd/report/explain.hpp"
#include "gspmd/windows.hpp"

#endif
