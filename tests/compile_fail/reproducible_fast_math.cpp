// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: reproducible.hpp: the compiler may reorder additions (-ffast-math, -fassociative-math)
#include <gspmd/gspmd.hpp>
#ifndef FIXED
#define __ASSOCIATIVE_MATH__ 1
#endif
#include <gspmd/transform/reproducible.hpp>  // <- here

int main() {
  gspmd::array<float> x({2});
  return x[0] > 0;
}
