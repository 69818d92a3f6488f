// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 2 3 4 8
// two nodes: 4
// group: run
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/transport/meeting_delay.hpp"
#include "gspmd/dynamic.hpp"
#include "gspmd/index.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/ops/ghost_zones.hpp"
#include "gspmd/windows.hpp"
#include "support/run_random_over_mpi.hpp"

// Halos between processes: through shared memory, in place in shared memory, and by messages. Small and large shards.

TEST_CASE("shifts over MPI") {
  using namespace gspmd;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const dynamic::mesh m({{"x", ranks}});
  for (const std::int64_t size : {std::int64_t{7}, std::int64_t{1501}})  // shards up to and beyond small_shard_bytes
    for (const bool rows : {true, false})
      for (const std::int64_t by : {std::int64_t{1}, std::int64_t{-2}, size / ranks + 1, -size + 1, size}) {
        const std::int64_t other = 11;
        const std::vector<std::int64_t> shape = rows ? std::vector{size, other} : std::vector{other, size};
        std::vector<double> x(static_cast<std::size_t>(size * other)), want(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i + 1);
        for (std::int64_t r = 0; r < shape[0]; ++r)
          for (std::int64_t c = 0; c < shape[1]; ++c) {
            const auto from_r = rows ? r + by : r, from_c = rows ? c : c + by;
            if (from_r >= 0 && from_r < shape[0] && from_c >= 0 && from_c < shape[1])
              want[static_cast<std::size_t>(r * shape[1] + c)] = x[static_cast<std::size_t>(from_r * shape[1] + from_c)];
          }
        dynamic::builder p(m);
        const auto split = rows ? std::vector<std::string>{"x", ""} : std::vector<std::string>{"", "x"};
        const value a = p.input(dynamic::input<double>(shape, split));
        p.output(p.reshard(shift(a * 1.0, by, along(rows ? 0 : 1)) + 0.0, split));  // in an arena, which processes can share
        const auto program = p.compile();
        for (const bool shares_memory : {true, false}) {
          mpi backend;
          backend.options.shared_memory = shares_memory;
          backend.options.largest_count = 100;
          const auto got = program.run(backend, x);
          int wrong = 0;
          for (std::size_t i = 0; i < want.size(); ++i) wrong += got[0].data<double>()[i] != want[i] ? 1 : 0;
          CAPTURE(size);
          CAPTURE(rows);
          CAPTURE(by);
          CHECK(wrong == 0);
        }
      }
}

TEST_CASE("several sweeps of a stencil on one exchange over MPI") {
  using namespace gspmd;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto heat = [](value u, std::int64_t sweeps) {
    const auto body = [](value, value t) {
      return stencil<1, 1>(
          [](auto at) { return at(0, 0) + 0.2 * (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1) - 4.0 * at(0, 0)); },
          stencil_field(t, {boundary::edge(), boundary::wrap()}));
    };
    return fori_loop(7, ghost(sweeps, body), u);
  };
  const dynamic::mesh m({{"x", ranks / 2}, {"y", 2}}), one({{"x", 1}});
  if (ranks % 2 != 0) return;
  for (const std::int64_t size : {std::int64_t{9}, std::int64_t{300}}) {
    std::vector<double> u(static_cast<std::size_t>(size * size));
    for (std::size_t i = 0; i < u.size(); ++i) u[i] = static_cast<double>(i * i % 23);
    const auto alone = dynamic::compile([&](value x) { return heat(x, 1); }, one, dynamic::input<double>({size, size}));
    const auto want = alone.run(serial{}, u);
    const auto wide = dynamic::compile([&](value x) { return heat(x, 3); }, m, dynamic::input<double>({size, size}, {"x", "y"}));
    CHECK(wide.traffic().messages <= 3 * 4);
    for (const bool shares_memory : {true, false}) {
      mpi backend;
      backend.options.shared_memory = shares_memory;
      const auto got = wide.run(backend, u);
      CHECK(std::memcmp(got[0].data<double>(), want[0].data<double>(), u.size() * sizeof(double)) == 0);
    }
  }
}

TEST_CASE("margins of several fields over MPI, of the caller's memory and of arenas") {
  using namespace gspmd;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto step = [](value u, value v) {
    return stencil<1, 1>(
        [](auto a, auto b) {
          return std::pair(a(-1, 0) + b(1, 0) + a(0, 1) * b(0, -1), b(-1, 0) - a(1, 0) + b(0, 1) * a(0, -1));
        },
        stencil_field(u, {boundary::wrap()}), stencil_field(v, {boundary::edge()}));
  };
  const auto program = [&](value u, value v) {  // the second step reads from an arena
    const auto [a, b] = step(u, v);
    return step(a * 0.5, b * 0.25);
  };
  const dynamic::mesh m({{"x", ranks}, {"y", 1}}), one({{"x", 1}, {"y", 1}});
  const std::int64_t n = 400;  // large enough to compute during the exchange
  const auto in = dynamic::input<double>({n, n}, {"x", "y"});
  std::vector<double> u(static_cast<std::size_t>(n * n)), v(u.size());
  for (std::size_t i = 0; i < u.size(); ++i) {
    u[i] = static_cast<double>(i * i % 23);
    v[i] = static_cast<double>(i * 7 % 19);
  }
  const auto want = dynamic::compile(program, one, in, in).run(serial{}, u, v);
  const auto both = dynamic::compile(program, m, in, in);
  CHECK(both.traffic().collectives == 2);
  for (const bool shares_memory : {true, false}) {
    mpi backend;
    backend.options.shared_memory = shares_memory;
    const auto got = both.run(backend, u, v);
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}})
      CHECK(std::memcmp(got[k].data<double>(), want[k].data<double>(), u.size() * sizeof(double)) == 0);
  }
}

TEST_CASE("random programs with shifts over MPI equal the naive reference") {
  struct setting {
    bool only_stencils;
    std::vector<gspmd::mpi_options> ways;  // the program runs with each of these options
  };
  for (const auto& [only_stencils, ways] : {setting{false, {{true, 64}, {false, 64}}}, setting{true, {{true, 64, 0}}}}) {
    std::optional<gspmd::detail::delayed_meetings> delays;
    if (only_stencils) delays.emplace();
    std::list<gspmd::mpi_communicator> comms;
    for (const auto& how : ways) comms.emplace_back(MPI_COMM_WORLD, how);
    reference::random_options options;
    options.stencils = true;
    options.max_operators = 8;
    options.devices = comms.front().device_count();
    options.shifts = options.maps = options.windows = !only_stencils;
    const auto first = reference::setting("GSPMD_SEED", 1);
    const auto count = 2 * reference::programs_on(options.devices, 200);
    std::uint64_t shifts = 0, overlapped = 0;
    for (auto seed = first; seed < first + count; ++seed) {
      const reference::random_program program(seed, options);
      auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, {});
      gspmd::detail::overlap_moves(plan, 1);  // otherwise, these loops are too small for overlap
      const gspmd::detail::plan_view view(plan);
      for (const auto& s : plan.steps) overlapped += gspmd::detail::is_rim(view, s) ? 1 : 0;
      std::uint64_t here = 0;
      for (const auto& s : plan.steps) here += gspmd::detail::is_mapped(s) && s.bytes_sent > 0 ? 1 : 0;
      if (here == 0) continue;
      shifts += here;
      for (auto& comm : comms) {
        const auto wrong = reference::run_and_check(comm, program, view);
        if (!wrong.empty()) FAIL_CHECK(wrong);
      }
    }
    CHECK(shifts > count / 20);
    CHECK(overlapped > count / 80);
  }
}
