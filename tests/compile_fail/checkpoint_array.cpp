// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: add takes a sharded_array, a shard_view, an array, a number or a group of them
#include <gspmd/gspmd.hpp>
#include <gspmd/io/checkpoint.hpp>

using namespace gspmd;

int main() {
#ifdef FIXED
  array<double> x({3});
#else
  double y[3] = {};
  double* x = y;
#endif
  checkpoint state;
  state.add("x", x);  // <- here
}
