// SPDX-License-Identifier: Apache-2.0
#pragma once

/// All of gspmd but the MPI backend, which is in gspmd/comm/mpi.hpp.

#include "gspmd/array.hpp"
#include "gspmd/budget.hpp"
#include "gspmd/comm/communicator.hpp"
#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/compile.hpp"
#include "gspmd/draw.hpp"
#include "gspmd/error.hpp"
#include "gspmd/explain.hpp"
#include "gspmd/grad.hpp"
#include "gspmd/inputs.hpp"
#include "gspmd/mesh.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/open_placement.hpp"
#include "gspmd/placed_array.hpp"
#include "gspmd/placements.hpp"
#include "gspmd/program.hpp"
#include "gspmd/run.hpp"
#include "gspmd/shard_view.hpp"
#include "gspmd/sharded_array.hpp"
#include "gspmd/sharding.hpp"
#include "gspmd/tree.hpp"
#include "gspmd/within_budget.hpp"
#include "gspmd/xla_sharding.hpp"
