// SPDX-License-Identifier: Apache-2.0
#include "support/multigrid.hpp"

// A long program of shifts, paddings and slices is planned within what compilers allow an evaluation, without a flag.

using namespace gspmd;

namespace {
using step = compile<multigrid::solve<1>, mesh<axis<"x", 2>, axis<"y", 2>, axis<"z", 2>>,
                     in<double, dims<32, 32, 32>, split<"x", "y", "z">>>;
static_assert(step::view.nodes.size() > 400);
static_assert(step::traffic.bytes > 0);
}  // namespace
