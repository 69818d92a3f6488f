// SPDX-License-Identifier: Apache-2.0
// ranks: 2
// group: run
// Processes with two threads give the same bits as processes with one thread.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/run/threads_per_device.hpp"

TEST_CASE("threads_per_device over mpi: a loop, products and blocks of rows") {
  using namespace gspmd;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto program = dynamic::compile(
      [](auto x, auto w) {
        const auto y = fori_loop(
            3, [](auto, auto u) { return 0.5F * u + 0.25F * (shift(u, 1, along(0)) + shift(u, -1, along(1))); }, x);
        return std::tuple{y, sum(y), softmax(y, 1), einsum<"ij,jk->ik">(y, w)};
      },
      dynamic::mesh({{"x", ranks}}), dynamic::input<float>({517, 640}, {"x", ""}), dynamic::input<float>({640, 96}));
  array<float> x({517, 640}), w({640, 96});
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 23) * 0.125F - 1.0F;
  for (std::int64_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 17) * 0.25F;
  for (const bool shares : {true, false}) {
    const mpi backend{MPI_COMM_WORLD, {.shared_memory = shares}};
    const auto expected = program.run(backend, x, w), shared = program.run(threads_per_device(2, backend), x, w);
    for (std::size_t k = 0; k < expected.size(); ++k) {
      const auto n = k == 0 || k == 2 ? 517 * 640 : k == 1 ? 1 : 517 * 96;
      for (std::int64_t i = 0; i < n; ++i)
        if (k < 3) REQUIRE(shared[k].data<float>()[i] == expected[k].data<float>()[i]);
        else REQUIRE(shared[k].data<float>()[i] == doctest::Approx(expected[k].data<float>()[i]).epsilon(1e-5));
    }
  }
}
