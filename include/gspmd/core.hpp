// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The header that most programs include: meshes, shardings, `compile`, gradients, budgets, and `run` on serial,
/// threads and simulated devices. The operators are einsum, elementwise operators, reductions, movements, loops and
/// conditionals.
///
/// gspmd/gspmd.hpp also includes the other operators (windows, indices, sorting, custom operators), `explain` and other
/// notations of shardings. A program with gspmd/core.hpp compiles a sixth less code. Each of the other parts has its
/// own header in gspmd/ and gspmd/ops/.

#include "gspmd/error.hpp"

#ifdef __cpp_exceptions  // Clang 16 continues after the fatal error of language.hpp, and would crash here

// Included first, so that errors in these headers have a short include context.
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/foreign_names.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/program/row_major.hpp"

#include "gspmd/ops/branches.hpp"
#include "gspmd/ops/dims.hpp"
#include "gspmd/ops/einsum.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/loops.hpp"
#include "gspmd/ops/map.hpp"
#include "gspmd/ops/matmul.hpp"
#include "gspmd/ops/named.hpp"
#include "gspmd/ops/policy.hpp"
#include "gspmd/ops/reduce.hpp"
#include "gspmd/ops/scan.hpp"
#include "gspmd/ops/shape.hpp"

#include "gspmd/comm/communicator.hpp"
#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/plan/budget.hpp"
#include "gspmd/program/array.hpp"
#include "gspmd/program/inputs.hpp"
#include "gspmd/program/mesh.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/program/shard_view.hpp"
#include "gspmd/program/sharded_array.hpp"
#include "gspmd/program/sharding.hpp"
#include "gspmd/program/tree.hpp"
#include "gspmd/run/compile.hpp"
#include "gspmd/run/run.hpp"
#include "gspmd/transform/grad.hpp"
#include "gspmd/version.hpp"

#endif
