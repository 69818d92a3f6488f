// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: local_op: the function does not keep the law of its rule
// expect: combined by add
// expect: reduces<...>
#include <gspmd/index.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/windows.hpp>

using namespace gspmd;

constexpr auto row_maximum = [](auto x, auto y) {
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    y(i) = x(i, 0);
    for (std::int64_t j = 1; j < x.extent(1); ++j) y(i) = x(i, j) > y(i) ? x(i, j) : y(i);
  }
};
#ifdef FIXED
constexpr auto op = local_op<"bt->b", reduces<monoid::max>>(row_maximum);
#else
constexpr auto op = local_op<"bt->b">(row_maximum);  // <- here
#endif

int main() { return op.operand_count - 1; }
