// SPDX-License-Identifier: Apache-2.0
// A convolution of floats, 3x3, 64 to 64 channels, on four images of 128 x 128, and a convolution of 3x3x3, 32 to 32,
// on two of 32^3. On one device, compared with one GEMM of the same products with prepared operands. On two threads
// that share the rows of each image, compared with half the time of one device. Medians, and the median and middle half
// of the ratios of neighbouring runs.
//
//   convolution [rounds, 15]
#include <gspmd/gspmd.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gspmd/detail/kernels/blas_threads.hpp"
#include "gspmd/detail/kernels/gemm.hpp"
#include "race.hpp"

namespace bench {
namespace {

using namespace gspmd;

struct plane {
  static constexpr const char* name = "convolution 3x3, 64 to 64 channels, 4 x 128 x 128";
  static constexpr std::int64_t places = 4 * 128 * 128, depth = 9 * 64, channels = 64;
  static constexpr auto program = [](auto x, auto w) { return convolution(x, w, "NHWC,HWIO->NHWC", {.padding = "same"}); };
  template <class Split>
  using image = input<float, shape<4, 128, 128, 64>, Split>;
  using kernel = input<float, shape<3, 3, 64, 64>>;
  using rows = split<_, "rows", _, _>;
};
struct space {
  static constexpr const char* name = "convolution 3x3x3, 32 to 32 channels, 2 x 32^3";
  static constexpr std::int64_t places = 2 * 32 * 32 * 32, depth = 27 * 32, channels = 32;
  static constexpr auto program = [](auto x, auto w) { return convolution(x, w, "NDHWC,DHWIO->NDHWC", {.padding = "same"}); };
  template <class Split>
  using image = input<float, shape<2, 32, 32, 32, 32>, Split>;
  using kernel = input<float, shape<3, 3, 3, 32, 32>>;
  using rows = split<_, "rows", _, _, _>;
};

template <class Problem, int Devices>
using step_on = compile<Problem::program, mesh<axis<"rows", Devices>>, typename Problem::template image<typename Problem::rows>,
                        typename Problem::kernel>;

/// A step with its shards, on the device that a communicator holds.
template <class Step>
struct runner {
  Step step;
  std::vector<float> x, w, y;

  runner()
      : x(Step::template input_shard<0>::local_elems, 0.5F),
        w(Step::template input_shard<1>::local_elems, 0.25F),
        y(Step::template output_shard<0>::local_elems) {}
  template <class Comm>
  double run(Comm& comm) {
    const double start = now_ms();
    step(comm, x, w, y);
    return now_ms() - start;
  }
};

template <class Problem>
void compare(int rounds) {
  race_times one_device, two_threads;
  const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  launch(serial{}, 1, [&](auto& comm) {
    runner<step_on<Problem, 1>> one;
    const std::vector<float> a(size(Problem::places, Problem::depth), 0.5F), b(size(Problem::depth, Problem::channels), 0.25F);
    std::vector<float> c(size(Problem::places, Problem::channels));
    for (int round = -2; round < rounds; ++round) {
      const double ours = one.run(comm), start = now_ms();
      detail::gemm<float>(false, false, Problem::places, Problem::channels, Problem::depth, a.data(), Problem::depth, b.data(),
                          Problem::channels, c.data(), Problem::channels, false);
      const double theirs = now_ms() - start;
      if (round >= 0) one_device.add(ours, theirs);
    }
  });
  one_device.print(std::string(Problem::name) + ", one device", "one GEMM");
  launch(threads{}, 2, [&](auto& comm) {
    runner<step_on<Problem, 2>> half;
    runner<step_on<Problem, 1>> whole;
    simulated_communicator lone(1);
    for (int round = -2; round < rounds; ++round) {
      comm.barrier();
      double ours = half.run(comm);
      comm.barrier();
      double both = comm.device(0) == 0 ? whole.run(lone) : 0;
      comm.barrier();
      if (round >= 0 && comm.device(0) == 0) two_threads.add(ours, both / 2);
    }
  });
  two_threads.print(std::string(Problem::name) + ", two threads", "half the time of one device");
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const gspmd::detail::single_threaded_blas single;
  bench::compare<bench::plane>(rounds);
  bench::compare<bench::space>(rounds);
}
