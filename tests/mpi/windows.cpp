// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 2 3 4 8
// two nodes: 4
// group: run
#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <vector>

#include "gspmd/detail/transport/meeting_delay.hpp"
#include "gspmd/dynamic.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/index.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/transform/grad.hpp"
#include "gspmd/windows.hpp"

// Shards rotate around a ring of processes: between shared arenas, and by messages.
TEST_CASE("limit_gather over MPI") {
  using namespace gspmd;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const dynamic::mesh m({{"x", ranks}});
  const std::size_t rows = 600, inner = 19, columns = 37;
  std::vector<double> x(rows * inner), w(inner * columns), y(rows * columns);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 7 % 11) - 5;
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<double>(i * 5 % 13) - 6;
  for (std::size_t b = 0; b < rows; ++b)
    for (std::size_t f = 0; f < columns; ++f)
      for (std::size_t d = 0; d < inner; ++d) y[b * columns + f] += x[b * inner + d] * w[d * columns + f];
  const auto bytes = static_cast<std::int64_t>(w.size() * sizeof(double));
  for (const bool free : {true, false})
    for (const std::int64_t limit : {std::int64_t{0}, bytes - 1}) {
      dynamic::builder p(m);
      const value a = p.input(dynamic::input<double>({600, 19}, {"x", ""}));
      const value b =
          p.input(dynamic::input<double>({19, 37}, free ? std::vector<std::string>{"", "x"} : std::vector<std::string>{"x", ""}));
      p.output(p.reshard(limit_gather(einsum("bd,df->bf", a, b), limit), {"x", ""}));
      const auto program = p.compile();
      CHECK(program.collectives() == std::vector<collective>{collective_permute<"x">});
      for (const bool shares_memory : {true, false}) {
        mpi backend;
        backend.options.shared_memory = shares_memory;
        const auto got = program.run(backend, x, w);
        int wrong = 0;
        for (std::size_t i = 0; i < y.size(); ++i) wrong += got[0].data<double>()[i] != y[i] ? 1 : 0;
        CHECK(wrong == 0);
      }
    }
}

// A member of a ring communicates with its neighbours only. Only the synchronisation keeps other members from
// overtaking it.
TEST_CASE("many steps under limit_gather, one after the other and without a check between them") {
  using namespace gspmd;
  mpi_communicator comm(MPI_COMM_WORLD);
  const int ranks = comm.device_count(), columns = 64;
  const dynamic::mesh m({{"x", ranks}});
  const detail::delayed_meetings delays;
  for (const bool in_callers_memory : {true, false}) {
    dynamic::builder p(m);
    const value a = p.input(dynamic::input<double>({8 * ranks, 16}, {"x", ""}));
    const value b = p.input(dynamic::input<double>({16, columns * ranks}, {"", "x"}));
    p.output(sum(limit_gather(einsum("bd,df->bf", a, in_callers_memory ? b : b * 1.0), 0)));
    const auto program = p.compile();
    dynamic::session steps(program);
    std::vector<double> x(8 * 16, 1.0), w(16 * columns), y(1);
    const void* inputs[] = {x.data(), w.data()};
    void* outputs[] = {y.data()};
    int wrong = 0;
    for (int step = 0; step < 40; ++step) {
      w.assign(w.size(), step % 7);
      steps.run(comm, inputs, outputs);
      wrong += y[0] != 8.0 * ranks * 16 * columns * ranks * (step % 7) ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

// Halos of convolutions, pools and their gradients, along one and two split dims, give the bits of one thread that
// simulates all devices.
TEST_CASE("convolutions, pools and their gradients over MPI") {
  using namespace gspmd;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto program = [](value x, value w) {
    const value y = max_pool(convolution(x, w, "NHWC,HWIO->NHWC", {.padding = "same"}), {1, 3, 2, 1}, {1, 2, 2, 1}, {0, 1, 0, 0},
                             {0, 1, 0, 0});
    const value z = avg_pool(upsample(y, {1, 2, 1, 1}), {1, 5, 1, 1}, {1, 1, 1, 1}, {0, 2, 0, 0}, {0, 2, 0, 0});
    return std::tuple_cat(std::tuple{z}, grad(sum(z * z), std::tuple{x, w}));
  };
  for (const auto& split :
       {std::vector<std::string>{"", "x", "", ""}, {"", "", "x", ""}, {"", "y", "x", ""}, {"", "x,y", "", ""}}) {
    const dynamic::mesh m({{"x", ranks % 2 == 0 ? ranks / 2 : ranks}, {"y", ranks % 2 == 0 ? 2 : 1}});
    const auto step =
        dynamic::compile(program, m, dynamic::input<double>({2, 11, 8, 3}, split), dynamic::input<double>({3, 3, 3, 2}));
    std::vector<double> x(2 * 11 * 8 * 3), w(3 * 3 * 3 * 2);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 7 % 11) - 5;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<double>(i * 5 % 13) - 6;
    const auto wanted = step.run(simulated{}, x, w);
    for (const bool shares_memory : {true, false}) {
      mpi backend;
      backend.options.shared_memory = shares_memory;
      const auto got = step.run(backend, x, w);
      for (std::size_t k = 0; k < 3; ++k) CHECK(got[k].bytes == wanted[k].bytes);
    }
  }
}
