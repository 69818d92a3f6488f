// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: local_op: the function takes no element type
#include <gspmd/index.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/windows.hpp>

using namespace gspmd;

#ifdef FIXED
constexpr auto op = local_op<"b->b">([](auto x, auto y) {
  for (std::int64_t i = 0; i < x.extent(0); ++i) y(i) = x(i);
});
#else
constexpr auto op = local_op<"b->b">([](auto x) { return x; });  // <- here
#endif

int main() { return sizeof(op) > 100; }
