// SPDX-License-Identifier: Apache-2.0
// Differences are not associative, so parts of a dim cannot be reduced separately.
// expect: gspmd: reduce_by: combine(combine(a, b), c) is not combine(a, combine(b, c))
#include <gspmd/index.hpp>
#include <gspmd/ops.hpp>
#include <gspmd/windows.hpp>

#include <array>
#include <tuple>

using namespace gspmd;

struct last_difference {
  using values = std::tuple<float, bool>;  // false: no value yet
  static constexpr values identity() { return {0, false}; }
  static constexpr values combine(values a, values b) {
    const auto [x, has_x] = a;
    const auto [y, has_y] = b;
    if (!has_x || !has_y) return has_x ? a : b;
#ifndef FIXED
    return {x - y, true};
#else
    return {x + y, true};
#endif
  }
  static constexpr std::array<values, 3> samples() { return {{{1, true}, {2, true}, {4, true}}}; }
};

std::array<value, 2> program(value x, value y) { return reduce_by<last_difference>({x, y}, 0); }  // <- here
