// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include <gspmd/comm/simulated.hpp>
#include <gspmd/io/hdf5.hpp>

int main() {
  const char* const file = "consumer.h5";
  double saved = 2.5, loaded = 0;
  gspmd::simulated_communicator two(2);
  gspmd::named_arrays out, in;
  out.add("time", saved);
  in.add("time", loaded);
  gspmd::save_hdf5(two, file, out);
  gspmd::load_hdf5(two, file, in);
  std::remove(file);
  return loaded == 2.5 ? 0 : 1;
}
