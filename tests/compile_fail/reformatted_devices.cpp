// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: reformatted: name the number of devices that a parameter is cut for, 1 or more
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>
#include <gspmd/nn/optimizer/reformatted.hpp>

using namespace gspmd;

#ifdef FIXED
constexpr optimizer::reformatted<optimizer::sgd, 4> sgd{};
#else
constexpr optimizer::reformatted<optimizer::sgd, 0> sgd{};  // <- here
#endif

int main() { return 0; }
