// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The header that most programs include: meshes, shardings, einsum, elementwise operators, reductions, movements, loops and conditionals,
/// gradients, `compile`, `run` on self, threads and simulated devices, and budgets. A program that includes this reads a sixth less than
/// with gspmd/gspmd.hpp, which has the other operators too (windows, indices, sorting, functions of your own), `explain` and the texts of
/// other notations; each of those has a header of its own in gspmd/ and gspmd/ops/.

#include "gspmd/error.hpp"

#ifdef __cpp_exceptions  // else Clang 16 reads on behind what error.hpp says, and crashes

// First: errors in these headers then need fewer lines for how they were included.
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/foreign_names.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/program.hpp"
#include "gspmd/row_major.hpp"

#include "gspmd/ops/branches.hpp"
#include "gspmd/ops/dims.hpp"
#include "gspmd/ops/einsum.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/loops.hpp"
#include "gspmd/ops/map.hpp"
#include "gspmd/ops/named.hpp"
#include "gspmd/ops/policy.hpp"
#include "gspmd/ops/reduce.hpp"
#include "gspmd/ops/scan.hpp"
#include "gspmd/ops/shape.hpp"

#include "gspmd/array.hpp"
#include "gspmd/budget.hpp"
#include "gspmd/comm/communicator.hpp"
#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/compile.hpp"
#include "gspmd/grad.hpp"
#include "gspmd/inputs.hpp"
#include "gspmd/mesh.hpp"
#include "gspmd/program.hpp"
#include "gspmd/run.hpp"
#include "gspmd/shard_view.hpp"
#include "gspmd/sharded_array.hpp"
#include "gspmd/sharding.hpp"
#include "gspmd/tree.hpp"
#include "gspmd/version.hpp"

#endif
