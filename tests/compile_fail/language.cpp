// SPDX-License-Identifier: Apache-2.0
// alone: yes
// language: c++17
// expect: gspmd needs C++20: compile with -std=c++20
#ifndef FIXED
#endif
#include "gspmd/ops/einsum.hpp"  // <- here

int main() { return gspmd::value{}.id() < 0 ? 0 : 1; }
