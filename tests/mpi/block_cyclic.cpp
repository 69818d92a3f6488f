// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 2 4
// group: run
// The factors of a matrix over a grid of ranks equal those on simulated devices, and solve the equations of the matrix.
#include "gspmd/linalg/block_cyclic.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/run/run.hpp"

using namespace gspmd;

TEST_CASE("block_cyclic over MPI: factors and solutions") {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  constexpr std::int64_t n = 21, k = 2;
  std::vector<double> a(n * n), b(n * k);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      a[static_cast<std::size_t>(i * n + j)] = (i == j ? n + 1 : 0) + std::cos(static_cast<double>(5 * (i + j)));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = std::sin(static_cast<double>(i));
  const auto p = dynamic::compile(
      [](value x, value y) {
        const matrix_grid grid{.rows = "x", .cols = "y", .block = 3};
        return std::tuple{cholesky(x, grid), solve_positive(x, y, grid), solve(x, y, grid)};
      },
      dynamic::mesh({{"x", 2}, {"y", ranks / 2}}), dynamic::input<double>({n, n}, {"x", "y"}), dynamic::input<double>({n, k}));
  const auto found = p.run(mpi{MPI_COMM_WORLD}, a, b), wanted = p.run(simulated{}, a, b);
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t e = 0; e < (r == 0 ? a.size() : b.size()); ++e)
      CHECK(found[r].data<double>()[e] == doctest::Approx(wanted[r].data<double>()[e]).epsilon(1e-12));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t c = 0; c < k; ++c)
      for (const std::size_t r : {std::size_t{1}, std::size_t{2}}) {
        double sum = -b[static_cast<std::size_t>(i * k + c)];
        for (std::int64_t j = 0; j < n; ++j) sum += a[static_cast<std::size_t>(i * n + j)] * found[r].data<double>()[j * k + c];
        CHECK(std::fabs(sum) < 1e-12);
      }
}
