// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The header with everything that programs of one mesh and fixed shapes need: gspmd/core.hpp and the other operators, `explain`, random
/// numbers, memory limits. Headers of their own: gspmd/comm/mpi.hpp (the MPI backend), gspmd/dynamic.hpp (meshes and shapes of the run
/// time), gspmd/on_network.hpp and gspmd/network.hpp (plans for a network, estimated times), gspmd/xla_sharding.hpp, gspmd/placements.hpp
/// and gspmd/draw.hpp (other notations),
/// gspmd/placed_array.hpp (tensors that lie on the devices in other ways), gspmd/ops/by_name.hpp and gspmd/inspect.hpp (programs that
/// are read from somewhere, and shown).

#include "gspmd/error.hpp"

#ifdef __cpp_exceptions  // else Clang 16 reads on behind what error.hpp says, and crashes

// First: what these report comes with fewer lines on how they were included.
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/foreign_names.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/refuse.hpp"

#include "gspmd/core.hpp"

#include "gspmd/checked.hpp"
#include "gspmd/explain.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/random.hpp"
#include "gspmd/views.hpp"
#include "gspmd/within.hpp"
#include "gspmd/within_budget.hpp"

#endif
