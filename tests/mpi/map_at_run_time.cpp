// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2 3
// group: run
#include <doctest/doctest.h>

#include <vector>

#include "gspmd/comm/mpi.hpp"
#include "gspmd/dynamic.hpp"
#include "gspmd/ops.hpp"

// Every rank has a function of its own, of one type and with the same state; the number of devices is that of the ranks.
TEST_CASE("map with state over MPI, static shapes on a mesh as large as the communicator") {
  using namespace gspmd;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const dynamic::mesh m({{"x", ranks}});
  const double limit = 2.5;
  const auto program = dynamic::compile(
      [&](auto a, auto b) {
        const auto rows = [limit](const double* x, const double* y, double* out, std::int64_t n) {
          for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * y[i] < limit ? x[i] * y[i] : limit;
        };
        auto clipped = map(by_rows<double>(rows), a, b);
        return std::tuple{map([limit](double x) { return x - limit; }, clipped), sum(clipped)};
      },
      m, in<double, dims<7>, split<"x">>{}, dynamic::in<double>({7}, {""}));
  std::vector<double> a(7);
  std::vector<double> b(7, 0.5);
  for (std::size_t i = 0; i < 7; ++i) a[i] = static_cast<double>(i);
  const auto result = program.run(mpi{MPI_COMM_WORLD}, a, b);
  double total = 0;
  for (std::size_t i = 0; i < 7; ++i) {
    const double clipped = a[i] * b[i] < limit ? a[i] * b[i] : limit;
    CHECK(result[0].data<double>()[i] == clipped - limit);
    total += clipped;
  }
  CHECK(result[1].data<double>()[0] == total);
}
