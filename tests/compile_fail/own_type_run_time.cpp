// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: dynamic::input: an element type of your own has no run-time path
#include <gspmd/dynamic.hpp>

struct fixed_point {
  int value;
  friend constexpr fixed_point operator*(fixed_point a, fixed_point b) { return {a.value * b.value >> 8}; }
  friend constexpr fixed_point operator+(fixed_point a, fixed_point b) { return {a.value + b.value}; }
};
template <>
struct gspmd::element_type<fixed_point> : gspmd::own_type<fixed_point, 0> {};

int main() {
#ifdef FIXED
  const auto given = gspmd::dynamic::input<int>({8});
#else
  const auto given = gspmd::dynamic::input<fixed_point>({8});  // <- here
#endif
  return static_cast<int>(given.shape.size()) - 1;
}
