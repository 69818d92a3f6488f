// SPDX-License-Identifier: Apache-2.0
#include "support/multigrid.hpp"

// A long program of shifts, paddings and slices is planned within what compilers allow an evaluation, without a flag: as NPB's MG of
// class S has them, four cycles. Steps and bytes are those that the planner gives at run time.

using namespace gspmd;

namespace {
using step = compile<multigrid::solve<4>, mesh<axis<"x", 2>, axis<"y", 2>, axis<"z", 2>>,
                     in<double, dims<32, 32, 32>, split<"x", "y", "z">>>;
static_assert(step::view.nodes.size() == 1874);
static_assert(step::view.steps.size() == 501);
static_assert(step::traffic.bytes == 495'534);
static_assert(step::view.arena_bytes == 266'240);
}  // namespace
