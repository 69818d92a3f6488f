// SPDX-License-Identifier: Apache-2.0
#include "support/multigrid.hpp"

// A long program of shifts, paddings and slices: four cycles of NPB's MG of class S. It is planned without a compiler
// flag, within the compilers' limits for one evaluation. The numbers of steps and bytes equal those of the planner at
// run time.

using namespace gspmd;

namespace {
using step = compile<multigrid::solve<4>, mesh<axis<"x", 2>, axis<"y", 2>, axis<"z", 2>>,
                     input<double, shape<32, 32, 32>, split<"x", "y", "z">>>;
static_assert(step::view.nodes.size() == 1874);
static_assert(step::view.steps.size() == 501);
static_assert(step::traffic.bytes == 495'534);
static_assert(step::view.arena_bytes == 266'240);
}  // namespace
