// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 1 2 3 4
// group: run
// Products with sparse matrices over MPI give the same bits as on simulated devices, for whole numbers.
#include "gspmd/sparse.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <tuple>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/run/run.hpp"

using namespace gspmd;

namespace sparse_over_mpi {

std::vector<double> some(std::int64_t n, int seed) {
  std::vector<double> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>((static_cast<int>(i) * 5 + seed) % 9 - 4);
  return v;
}
constexpr auto all_products = [](auto a, auto x, auto y) {
  const value product = multiply(a, x);
  const auto g = grad(sum(product * y), std::tuple{x, a.entries});
  return std::tuple{product, multiply_transposed(a, y), std::get<0>(g), std::get<1>(g)};
};

TEST_CASE("sparse_matrix over MPI: near rows, rows at random, and blocks") {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::mt19937 draw(5);
  const auto check = [&](std::int64_t rows, std::int64_t columns, std::int64_t block, auto column_of) {
    std::vector<std::int64_t> row_start{0}, column;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (unsigned k = 0; k < draw() % 4; ++k) column.push_back(column_of(r));
      row_start.push_back(static_cast<std::int64_t>(column.size()));
    }
    const auto values = some(static_cast<std::int64_t>(column.size()) * block * block, 2);
    const sparse_matrix<double> a(rows, columns, row_start, column, values, ranks, block);
    const auto vector = [&](std::int64_t n) {
      return block > 1 ? dynamic::input<double>({n, block}, {"x", ""}) : dynamic::input<double>({n}, {"x"});
    };
    const auto program =
        dynamic::compile(all_products, dynamic::mesh({{"x", ranks}}), a.input<"x">(), vector(columns), vector(rows));
    const auto x = some(columns * block, 1), y = some(rows * block, 3);
    const auto expected = program.run(simulated{}, a.parts(), x, y);
    const auto found = program.run(mpi{MPI_COMM_WORLD}, a.parts(), x, y);
    const auto by_messages = program.run(mpi{MPI_COMM_WORLD, {.shared_memory = false}}, a.parts(), x, y);
    for (std::size_t k = 0; k < expected.size(); ++k) {
      CHECK(found[k].bytes == expected[k].bytes);
      CHECK(by_messages[k].bytes == expected[k].bytes);
    }
    double by_hand = 0, sum = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (auto k = row_start[static_cast<std::size_t>(r)]; k < row_start[static_cast<std::size_t>(r) + 1]; ++k)
        for (std::int64_t i = 0; i < block * block; ++i)
          by_hand += values[static_cast<std::size_t>(k * block * block + i)] *
                     x[static_cast<std::size_t>(column[static_cast<std::size_t>(k)] * block + i % block)];
    for (std::int64_t i = 0; i < rows * block; ++i) sum += found[0].template data<double>()[i];
    CHECK(sum == by_hand);
  };
  check(21, 21, 1, [](std::int64_t r) { return r < 20 ? r + 1 : r; });
  check(17, 40, 1, [&](std::int64_t) { return static_cast<std::int64_t>(draw() % 40); });
  check(10, 6, 3, [&](std::int64_t) { return static_cast<std::int64_t>(draw() % 6); });
  check(2, 3, 1, [&](std::int64_t) { return static_cast<std::int64_t>(draw() % 3); });
}

}  // namespace sparse_over_mpi
