// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: carried: the function has fewer arguments than are carried
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/update.hpp>

using namespace gspmd;

constexpr auto move = [](value u, value v) { return std::tuple{u + v, v}; };
#ifdef FIXED
constexpr auto program = carried<2>(move);
#else
constexpr auto program = carried<3>(move);
#endif
using step = compile<program, mesh<axis<"x", 2>>, input<float, shape<8>>, input<float, shape<8>>>;

int main() { return step::traffic.bytes > 0 ? 0 : 1; }  // <- here
