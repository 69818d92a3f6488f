// SPDX-License-Identifier: Apache-2.0
// expect: update: input 0 has two next
#include <tuple>

#include <gspmd/gspmd.hpp>
#include <gspmd/transform/update.hpp>

using namespace gspmd;

constexpr auto program = [](value u, value f) {
#ifdef FIXED
  return std::tuple{update(u, u + f), update(f, u - f)};
#else
  return std::tuple{update(u, u + f), update(u, u - f)};
#endif
};
using step = compile<program, mesh<axis<"x", 2>>, input<float, shape<8>, split<"x">>, input<float, shape<8>>>;

int main() { return step::traffic.bytes > 0 ? 0 : 1; }  // <- here
