// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: an operand has an element type that the operator does not take
// expect: carried: input 0 is f32[8]
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/update.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
#ifdef FIXED
constexpr auto step_of_u = [](value u) { return u * 0.5; };
#else
constexpr auto step_of_u = [](value u) { return cast<double>(u); };
#endif
using step = compile<carried(step_of_u), pod, input<float, shape<8>, split<"data">>>;

int main() { return step::traffic.bytes > 0 ? 1 : 0; }  // <- here
