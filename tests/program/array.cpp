// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: planner
// Elements of an array by several indices, and an array as text.
#include <doctest/doctest.h>

#include <cstdint>
#include <sstream>
#include <string>

#include <gspmd/core.hpp>

#include "gspmd/program/print.hpp"

using namespace gspmd;

TEST_CASE("a(i, j) is the element of row i and column j") {
  array<std::int32_t> x({2, 3});
  for (int k = 0; k < 6; ++k) x[k] = k;
  const auto& same = x;
  CHECK(x(1, 0) == 3);
  CHECK(same(std::int64_t{1}, 2U) == 5);
  x(0, 1) = 9;
  CHECK(x[1] == 9);
  array<float> scalar(detail::extents{});
  scalar() = 4;
  CHECK(scalar[0] == 4);
  CHECK_THROWS_WITH(static_cast<void>(x(1)),
                    "gspmd: array: an element of [2,3] has 2 indices and not 1; pass one index for each dim");
}

TEST_CASE("an array is printed as NumPy does") {
  array<double> x({2, 2, 2});
  for (int k = 0; k < 8; ++k) x[k] = k == 3 ? -0.5 : k;
  std::ostringstream out;
  out << x;
  CHECK(out.str() == "[[[   0    1]\n  [   2 -0.5]]\n\n [[   4    5]\n  [   6    7]]]");
  CHECK(to_string(array<float>({0})) == "[]");
  CHECK(to_string(array<std::int32_t>({3})) == "[0 0 0]");
  CHECK(to_string(array<bool>(detail::extents{})) == "false");
  array<c64> z({2});
  z[0] = {1, -2};
  CHECK(to_string(z) == "[1-2i 0+0i]");
  CHECK(to_string(array<bf16>({1})) == "[0]");
  array<std::int64_t> many({2, 1000});
  for (int k = 0; k < 2000; ++k) many[k] = k;
  CHECK(to_string(many) == "[[   0    1    2 ...  997  998  999]\n [1000 1001 1002 ... 1997 1998 1999]]");
}
