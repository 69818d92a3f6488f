// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 1 2 3 4
// two nodes: 4
// group: run
// Over MPI, reproducible functions give the bits of one device, for all numbers of ranks and nodes and all algorithms
// of collectives.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/transform/reproducible.hpp"

TEST_CASE("reproducible over mpi: the bits of one device") {
  using namespace gspmd;
  const auto f = [](value x, value w) {
    const value y = tanh(einsum<"ab,bc->ac">(x, w) * 1e-3);
    return std::tuple{sum(x), sum(x, 0), einsum<"ab,ac->bc">(x, y), grad(mean(y * y), w), cumsum(x, 0), softmax(y, 0)};
  };
  constexpr std::int64_t rows = 501, columns = 46, features = 9;
  std::vector<double> x(rows * columns), w(columns * features);
  for (auto* const t : {&x, &w})
    for (std::size_t i = 0; i < t->size(); ++i)
      (*t)[i] = std::ldexp(std::sin(1.7 * static_cast<double>(i)), static_cast<int>(i * 7 % 13) - 6);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto planned = [&](auto program, int devices, const std::vector<std::string>& by) {
    return dynamic::compile(program, dynamic::mesh({{"a", devices}}), dynamic::input<double>({rows, columns}, by),
                            dynamic::input<double>({columns, features}));
  };
  const std::vector<const void*> inputs{x.data(), w.data()};
  const auto want = planned(reproducible(f), 1, {"", ""}).run(serial{}, inputs);
  const auto plain = planned(f, 1, {"", ""}).run(serial{}, inputs);
  int plain_differs = 0;
  const auto same = [](const auto& a, const auto& b) {
    return a.bytes.size() == b.bytes.size() && std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
  };
  for (const std::vector<std::string>& by : {std::vector<std::string>{"a", ""}, std::vector<std::string>{"", "a"}})
    for (const mpi_options& options : {mpi_options{}, mpi_options{.shared_memory = false}, mpi_options{.small_shard_bytes = 0}}) {
      const auto got = planned(reproducible(f), ranks, by).run(mpi{MPI_COMM_WORLD, options}, inputs);
      for (std::size_t k = 0; k < want.size(); ++k) {
        CAPTURE(k);
        CHECK(same(got[k], want[k]));
      }
      const auto other = planned(f, ranks, by).run(mpi{MPI_COMM_WORLD, options}, inputs);
      for (std::size_t k = 0; k < want.size(); ++k) plain_differs += same(other[k], plain[k]) ? 0 : 1;
    }
  CHECK((plain_differs > 0) == (ranks > 1));
}

TEST_CASE("maxima over mpi: a NaN stays one, however large the reduce_scatter") {
  using namespace gspmd;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::int64_t columns = 9000;
  constexpr float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x(static_cast<std::size_t>(columns * ranks), 1.0F);
  for (std::int64_t j = 0; j < columns; ++j) {
    const auto place = static_cast<std::size_t>(j + j % ranks * columns);
    if (j % 5 == 1) x[place] = std::numeric_limits<float>::quiet_NaN();
    if (j % 5 == 2) x[place] = inf;
    if (j % 5 == 3) x[place] = -inf;
  }
  for (const monoid kind : {monoid::max, monoid::min}) {
    const auto p = dynamic::compile([&](value v) { return reshard(reduce(v, kind, 0), split<"a">{}); },
                                    dynamic::mesh({{"a", ranks}}), dynamic::input<float>({ranks, columns}, {"a", ""}));
    const auto want = p.run(simulated{}, {x.data()});
    const auto got = p.run(mpi{MPI_COMM_WORLD, {.shared_memory = false}}, {x.data()});
    int differ = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      const float a = got[0].data<float>()[j], b = want[0].data<float>()[j];
      differ += (j % 5 == 1 ? std::isnan(a) : a == b) ? 0 : 1;
    }
    CHECK(differ == 0);
  }
}
