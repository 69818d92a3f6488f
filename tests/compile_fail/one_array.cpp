// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: this file holds one array: give a sharded_array, a shard_view, an array or a number
#include <tuple>

#include <gspmd/gspmd.hpp>
#include <gspmd/io/npy.hpp>

using namespace gspmd;

int main() {
  array<double> x({3}), y({4});
  launch(threads{}, 2, [&](auto& comm) {
#ifdef FIXED
    save_npy(comm, "x.npy", x);
#else
    save_npy(comm, "x.npy", std::tie(x, y));  // <- here
#endif
  });
}
