// SPDX-License-Identifier: Apache-2.0
// expect: next_value: input 0 has two next
#include <tuple>

#include <gspmd/gspmd.hpp>
#include <gspmd/transform/next_value.hpp>

using namespace gspmd;

constexpr auto program = [](value u, value f) {
#ifdef FIXED
  return std::tuple{next_value(u, u + f), next_value(f, u - f)};
#else
  return std::tuple{next_value(u, u + f), next_value(u, u - f)};
#endif
};
using step = compile<program, mesh<axis<"x", 2>>, in<float, dims<8>, split<"x">>, in<float, dims<8>>>;

int main() { return step::traffic.bytes > 0 ? 0 : 1; }  // <- here
