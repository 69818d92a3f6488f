// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 2 4
// group: run
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/run/collect_on.hpp"

using namespace gspmd;

TEST_CASE("steps made at run time on shards over MPI, gathered to one rank") {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const dynamic::mesh m({{"x", ranks / 2}, {"y", 2}});
  const auto p = dynamic::compile([](value u, value w) { return std::pair(u + w, sum(u)); }, m,
                                  dynamic::input<double>({7, 3}, {"x", "y"}), dynamic::input<double>({3}, {"y"}));
  array<double> u({7, 3}), w({3});
  for (std::int64_t i = 0; i < u.size(); ++i) u[i] = static_cast<double>(i);
  for (std::int64_t i = 0; i < w.size(); ++i) w[i] = static_cast<double>(10 * i);
  for (const bool shared_memory : {true, false}) {
    mpi_communicator comm(MPI_COMM_WORLD, {shared_memory});
    auto now = distribute(comm, p, 0, u);
    const auto added = distribute(comm, p, 1, w);
    auto next = make_result(comm, p, 0, now);
    auto total = make_result<double>(comm, p, 1);
    dynamic::session s(p);
    for (int t = 0; t < 4; ++t) {
      s(comm, now, added, next, total);
      std::swap(now, next);
    }
    CHECK(*total.data() == 210 + 3 * 7 * 30);
    for (int to = 0; to < ranks; ++to) {
      const auto whole = collect_on(comm, to, now);
      CHECK(whole.size() == (comm.device(0) == to ? 21 : 0));
      for (std::int64_t i = 0; i < whole.size(); ++i) CHECK(whole[i] == u[i] + 4 * w[i % 3]);
    }
    CHECK_THROWS_WITH_AS(s(comm, added, added, next, total),
                         doctest::Contains("input 0 is f64[7,3] and the sharded_array given is f64[3]"), error);
  }
}
