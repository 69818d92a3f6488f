// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The header for compiled programs: gspmd/core.hpp, all operators (gspmd/windows.hpp and gspmd/index.hpp among them), `explain`, memory
/// limits and budgets, checked meshes, views of meshes. Headers of their own are gspmd/comm/mpi.hpp (the MPI backend), gspmd/dynamic.hpp
/// (meshes and shapes of the run time), gspmd/modes.hpp (the explicit and the manual mode), gspmd/layouts.hpp (other ways to say how
/// tensors lie), gspmd/report.hpp (plans as text and pictures, their times) and gspmd/on_network.hpp (plans for a network).

#include "gspmd/error.hpp"

#ifdef __cpp_exceptions  // else Clang 16 reads on behind what error.hpp says, and crashes

// First: errors in these headers then need fewer lines for how they were included.
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/foreign_names.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/program.hpp"
#include "gspmd/row_major.hpp"

#include "gspmd/core.hpp"

#include "gspmd/index.hpp"
#include "gspmd/layouts/mesh_views.hpp"
#include "gspmd/memory_limit.hpp"
#include "gspmd/modes/checked.hpp"
#include "gspmd/ops/local_op.hpp"
#include "gspmd/report/explain.hpp"
#include "gspmd/windows.hpp"
#include "gspmd/within_budget.hpp"

#endif
