// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: local_op: a rule has the form `bi,io->bo` or `b[t]->b[u=t-2]`; see the column that message<> names
// expect: rule `b(t+1)->bt`, column 2
#include <gspmd/index.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/windows.hpp>

using namespace gspmd;

constexpr auto copy = [](auto x, auto y) {
  for (std::int64_t i = 0; i < x.extent(0); ++i)
    for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = x(i, j);
};
#ifdef FIXED
constexpr auto op = local_op<"b[t]->bt">(copy);
#else
constexpr auto op = local_op<"b(t+1)->bt">(copy);  // <- here
#endif

int main() { return sizeof(op) > 100; }
