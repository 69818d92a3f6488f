// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 2 3
// group: run
// Steps, blocks and ghost layers in the caller's memory over MPI, with any strides.
#include "gspmd/external.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/external/ghost_exchange.hpp"
#include "gspmd/external/placed_view.hpp"
#include "gspmd/external/program.hpp"
#include "gspmd/index.hpp"
#include "gspmd/layouts/blocks.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/windows.hpp"
#include "support/block_checks.hpp"
#include "support/layouts.hpp"

using namespace gspmd;

TEST_CASE("shards with ghost layers around them, over MPI") {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  constexpr auto diffuse = [](auto u) {
    return u + 0.25 * (shift(u, -1, along(0)) + shift(u, 1, along(0)) + shift(u, -1, along(1)) - 2.0 * u);
  };
  const auto p = dynamic::compile(diffuse, dynamic::mesh({{"x", ranks}}), dynamic::input<double>({7, 6}, {"x", ""}));
  std::vector<double> whole(42), wanted(42), in_columns(42), gathered(42, -1);
  std::iota(whole.begin(), whole.end(), 0.5);
  run_into(p, mpi{MPI_COMM_WORLD}, strided_view(wanted.data(), {7, 6}), strided_view(whole.data(), {7, 6}));
  const strided_view columns(in_columns.data(), {7, 6}, column_major);
  for (std::int64_t i = 0; i < 7; ++i)
    for (std::int64_t j = 0; j < 6; ++j)
      in_columns[static_cast<std::size_t>(i + 7 * j)] = whole[static_cast<std::size_t>(6 * i + j)];
  run_into(p, mpi{MPI_COMM_WORLD}, strided_view(gathered.data(), {7, 6}), columns);
  CHECK(gathered == wanted);

  mpi_communicator comm(MPI_COMM_WORLD);
  const auto mine = p.input(0).valid_range(comm.device(0), along(0));
  const auto rows = mine.size();
  std::vector<double> u(static_cast<std::size_t>(rows + 2) * 8, -1), next = u;
  const strided_view block(u.data(), {rows + 2, 8}), next_block(next.data(), {rows + 2, 8});
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < 6; ++j)
      u[static_cast<std::size_t>((i + 1) * 8 + j + 1)] = whole[static_cast<std::size_t>((mine.begin + i) * 6 + j)];
  dynamic::session s(p);
  for (int again = 0; again < 2; ++again) s(comm, block.interior({1, 1}), next_block.interior({1, 1}));
  CHECK_EQ(s.copied_bytes(), 2 * rows * 6 * 8);
  bool is_right = true;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < 6; ++j)
      is_right = is_right && next[static_cast<std::size_t>((i + 1) * 8 + j + 1)] ==
                                 wanted[static_cast<std::size_t>((mine.begin + i) * 6 + j)];
  CHECK(is_right);
  CHECK(next[0] == -1);

  const auto line = layouts::mesh_of({ranks});
  for (const auto& by : {layouts::split({{0}, {}}), layouts::split({{}, {0}}), layouts::split({})})
    for (const auto& widths : {detail::extents{1, 1}, detail::extents{3, 0}}) {
      CHECK_EQ(blocks::wrong_ghosts(comm, placed_layout(line, {7, 5}, by, balanced{}, balanced{}), widths, {}), 0);
      CHECK_EQ(blocks::wrong_ghosts(comm, placed_layout(line, {2, 5}, by), widths, {true, true}), 0);
    }
}

TEST_CASE("blocks of another code to a program and back, over MPI") {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const dynamic::mesh m({{"x", ranks}});
  const auto p = dynamic::compile([](value u) { return u * 2; }, m, dynamic::input<float>({7, 5}, {"x", ""}));
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(ranks), 0);
  sizes.back() = 7;
  const auto rows = layout_of_input(p, 0, ragged_list{sizes});  // the last rank has all rows
  const auto columns = layout_on(m, {7, 5}, {"", "x"}, contiguous{}, balanced{});
  mpi_communicator comm(MPI_COMM_WORLD);
  const int me = comm.device(0);
  std::vector<float> u(rows.held(me, along(0)).size() * 5), next(7 * columns.held(me, along(1)).size(), -1);
  std::iota(u.begin(), u.end(), 0.0F);
  const auto width = static_cast<std::int64_t>(columns.held(me, along(1)).size());
  dynamic::session s(p);
  for (int again = 0; again < 2; ++again)
    s(comm, placed_view(rows, strided_view(u.data(), {static_cast<std::int64_t>(u.size()) / 5, 5})),
      placed_view(columns, strided_view(next.data(), {7, width})));
  bool is_right = true;
  for (std::int64_t i = 0; i < 7; ++i)
    for (std::int64_t j = 0; j < width; ++j)
      is_right = is_right && next[static_cast<std::size_t>(i * width + j)] ==
                                 static_cast<float>(2 * (i * 5 + columns.held(me, along(1))[static_cast<std::size_t>(j)]));
  CHECK(is_right);
}
