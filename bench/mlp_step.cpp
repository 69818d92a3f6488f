// SPDX-License-Identifier: Apache-2.0
// The MLP step on two threads, compared with hand-written code; medians, and the median and middle half of the ratios
// of neighbouring runs.
//
//   mlp_step [rounds, 20]
#include "mlp.hpp"

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  bench::race_times data, model;
  launch(gspmd::threads{}, 2, [&](auto& comm) { bench::race<bench::data_step>(comm, true, rounds, data); });
  data.print("MLP step, threads, data = 2");
  launch(gspmd::threads{}, 2, [&](auto& comm) { bench::race<bench::model_step>(comm, false, rounds, model); });
  model.print("MLP step, threads, model = 2");
}
