// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: errors at run time are exceptions of type gspmd::error; compile without -fno-exceptions
#ifndef FIXED
#undef __cpp_exceptions
#endif
#include "gspmd/gspmd.hpp"  // <- here

int main() {
  gspmd::array<float> x({2});  // the use of the library gives no further error
  return x[0] > 0;
}
