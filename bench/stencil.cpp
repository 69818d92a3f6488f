// SPDX-License-Identifier: Apache-2.0
// Stencils on threads, compared with hand-written code, which reads ghost cells from the neighbour's memory. Medians of the time
// of one step, and the median and middle half of the ratios of neighbouring runs; memory of one device.
//
//   stencil [rounds, 15] [devices, the processors]: 2, or 4 for meshes of 2 x 2 too
#include "stencil.hpp"

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const int devices = argc > 2 ? std::atoi(argv[2]) : static_cast<int>(std::thread::hardware_concurrency());
  const auto run = []<class Problem>(int count, const auto& visit) {
    std::vector<bench::block<Problem>*> blocks(static_cast<std::size_t>(count));
    launch(gspmd::threads{}, count, [&](auto& comm) {
      const auto exchange = [&](bench::block<Problem>& own) {
        blocks[static_cast<std::size_t>(comm.device(0))] = &own;
        comm.barrier();  // all devices have computed; the elements that are read here are not overwritten before the next barrier
        for (int dim = 0; dim < 2; ++dim)
          for (const int side : {-1, 1}) {
            const int peer = own.neighbour(dim, side);
            if (peer < 0) continue;
            const auto& other = *blocks[static_cast<std::size_t>(peer)];
            const auto to = own.layer_of(dim, side < 0 ? -1 : own.n[dim]);
            const auto from = own.layer_of(dim, side < 0 ? own.n[dim] - 1 : 0);
            for (std::int64_t p = 0; p < to.pieces; ++p)
              std::copy_n(other.field[own.now].data() + from.begin + p * from.step, to.length,
                          own.field[own.now].data() + to.begin + p * to.step);
          }
        return 0;
      };
      visit(comm, exchange);
    });
    return true;
  };
  bench::compare_all("threads", devices, rounds, run);
}
