// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: an operand has an element type that the operator does not take; convert it; see message<>
// expect: carried: input 0 is f32[8] and its
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/update.hpp>

using namespace gspmd;

constexpr auto move = [](value u, value v) {
#ifdef FIXED
  return cast<float>(u > v);
#else
  return u > v;
#endif
};
using step = compile<carried(move), mesh<axis<"x", 2>>, input<float, shape<8>>, input<float, shape<8>>>;

int main() { return step::traffic.bytes > 0 ? 0 : 1; }  // <- here
