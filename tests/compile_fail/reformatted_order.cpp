// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: with_master_weights: the floats have the shapes of the parameters
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>
#include <gspmd/nn/optimizer/master_weights.hpp>
#include <gspmd/nn/optimizer/reformatted.hpp>

using namespace gspmd;

#ifdef FIXED
constexpr optimizer::reformatted<optimizer::with_master_weights<optimizer::adam>, 4> adam{};
#else
constexpr optimizer::with_master_weights<optimizer::reformatted<optimizer::adam, 4>> adam{};  // <- here
#endif

int main() { return 0; }
