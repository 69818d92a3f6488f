// SPDX-License-Identifier: Apache-2.0
// In a program with types a reshard goes from any layout to any other one, by steps that the compiler finds.
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/tensor.hpp>

using namespace gspmd;

namespace {

using pod = mesh<axis<"x", 2>, axis<"y", 2>>;
template <class Before, class After>
using step = compile<[](auto a) { return reshard<After>(a); }, pod, tensor<float, dims<8, 8>, place<pod, Before>>>;

// Parts of 32 elements, gathered over x, of which each device keeps a half.
using to_other_axis = step<split<"x", _>, split<"y", _>>;
static_assert(same_collectives<to_other_axis, collectives{all_gather<"x">}>);
static_assert(to_other_axis::traffic.bytes == 4 * 32);

// Parts of 16 elements, gathered over one axis; a half of the 32 is exchanged over the other one.
using turned = step<split<"x", "y">, split<"y", "x">>;
static_assert(turned::traffic.bytes == 4 * (16 + 16));
using other_order = step<split<"x,y", _>, split<"y,x", _>>;
static_assert(other_order::traffic.bytes == 4 * (16 + 32));

}  // namespace
