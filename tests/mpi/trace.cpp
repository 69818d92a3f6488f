// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 2 3
// group: run
// The first process receives the steps of all processes: the plan's number of collectives from each process, with times
// of one clock.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/report/measure_network.hpp"
#include "gspmd/trace.hpp"

namespace {

std::int64_t count(const std::string& text, const std::string& what) {
  std::int64_t n = 0;
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("trace over mpi: the first process gets the steps of all") {
  using namespace gspmd;
  int ranks = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto program = dynamic::compile(
      [](auto x) {
        return fori_loop(
            4, [](auto, auto u) { return u - sum(u) * 0.01; }, x);
      },
      dynamic::mesh({{"x", ranks}}), dynamic::input<double>({7, 3}, {"x", ""}));
  std::int64_t sent = 0;
  for (const auto& s : program.view().steps) sent += detail::communicates(s) ? s.times : 0;
  REQUIRE(sent > 0);
  array<double> x({7, 3});
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * i);

  run_trace watched;
  const auto expected = program.run(simulated{}, x), result = program.run(traced(mpi{MPI_COMM_WORLD}, watched), x);
  for (std::int64_t i = 0; i < x.size(); ++i)
    CHECK(result[0].data<double>()[i] == doctest::Approx(expected[0].data<double>()[i]).epsilon(1e-12));
  CHECK(count(watched.json(), "\"communicates\"") == sent);
  const auto own = watched.size();
  run_trace two;  // a process that ran another program before
  const auto alone = dynamic::compile([](auto a) { return exp(a); }, dynamic::mesh({{"x", 1}}), dynamic::input<double>({7, 3}));
  if (rank > 0) static_cast<void>(alone.run(traced(serial{}, two), x));
  static_cast<void>(program.run(traced(mpi{MPI_COMM_WORLD}, two), x));
  mpi_communicator comm(MPI_COMM_WORLD);
  for (int twice = 0; twice < 2; ++twice) {
    watched.collect(comm);
    CHECK(watched.size() == (rank == 0 ? own * static_cast<std::size_t>(ranks) : 0));
  }
  two.collect(comm);
  if (rank != 0) return;
  CHECK(count(two.json(), "\"communicates\"") == sent * ranks);
  CHECK(count(two.json(), "\"exp\"") == ranks - 1);
  const auto json = watched.json();
  CHECK(count(json, "\"communicates\"") == sent * ranks);
  for (int d = 0; d < ranks; ++d)
    CHECK(count(json, "\"tid\": " + std::to_string(d) + ", \"ts\"") == static_cast<std::int64_t>(own));
  CHECK(count(json, "\"ts\": -") == 0);
}

TEST_CASE("measure_network over mpi: the same on all processes") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  const auto here = gspmd::measure_network(comm);
  double own[] = {here.flops_per_second(), here.memory_bytes_per_second(), here.link("x").bytes_per_second,
                  here.link("x").seconds_per_message};
  double least[4], most[4];
  MPI_Allreduce(own, least, 4, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(own, most, 4, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  for (int k = 0; k < 4; ++k) {
    CHECK(least[k] == most[k]);
    CHECK(least[k] > 0);
  }
}
