// SPDX-License-Identifier: Apache-2.0
// alone: yes
// expect: gspmd: an operator states every fact of complete_operator
// expect: flops
#include <gspmd/gspmd.hpp>

// An operator that does not state its amount of arithmetic. static/complete_operator.cpp tests the other facts.
struct forgetful : gspmd::detail::transpose_op {
#ifndef FIXED
  static constexpr char flops = '\0';
#endif
};

static_assert(gspmd::detail::checked_operator<forgetful>::holds);  // <- here

int main() {}
