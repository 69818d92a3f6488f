// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: an element type of your own is trivially copyable: devices copy its bytes
#include <gspmd/program/dtype.hpp>

struct counted {
  double value;
#ifndef FIXED
  counted(const counted& other) : value(other.value) {}
#endif
  counted() = default;
  friend counted operator+(const counted& a, const counted& b);
  friend counted operator*(const counted& a, const counted& b);
};
template <>
struct gspmd::element_type<counted> : gspmd::own_type<counted, 0> {};  // <- here
