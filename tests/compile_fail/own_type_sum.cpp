// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: an element type of your own has a + b and a * b, of const operands, which give it
#include <gspmd/program/dtype.hpp>

struct fixed_point {
  int value;
  friend constexpr fixed_point operator*(fixed_point a, fixed_point b) { return {a.value * b.value >> 8}; }
#ifdef FIXED
  friend constexpr fixed_point operator+(fixed_point a, fixed_point b) { return {a.value + b.value}; }
#endif
};
template <>
struct gspmd::element_type<fixed_point> : gspmd::own_type<fixed_point, 0> {};  // <- here
