// SPDX-License-Identifier: Apache-2.0
// In an explicit program, a reshard converts any layout to any other layout, with the same collectives as the automatic
// mode.
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/tensor.hpp>

using namespace gspmd;

namespace {

using pod = mesh<axis<"x", 2>, axis<"y", 2>>;
template <class Before, class After>
using step = compile<[](auto a) { return reshard<After>(a); }, pod, tensor<float, shape<8, 8>, place<pod, Before>>>;

// The devices whose parts of 32 elements differ exchange their parts.
using to_other_axis = step<split<"x", _>, split<"y", _>>;
static_assert(same_collectives<to_other_axis, collectives{collective_permute<"x">}>);
static_assert(to_other_axis::traffic.bytes == 4 * 32);

// Each device sends its part of 16 elements once.
using turned = step<split<"x", "y">, split<"y", "x">>;
static_assert(turned::traffic.bytes == 4 * 16);
using other_order = step<split<"x,y", _>, split<"y,x", _>>;
static_assert(other_order::traffic.bytes == 4 * 16);

}  // namespace
