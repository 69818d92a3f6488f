// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Matrices as ScaLAPACK distributes them, by their descriptors: to steps and back.
#include "gspmd/external/scalapack.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/comm/threads.hpp"
#include "gspmd/external/placed_view.hpp"
#include "gspmd/gspmd.hpp"
#include "support/error_of.hpp"

using namespace gspmd;

static_assert(obeys_placement_law<scalapack_blocks>());
static_assert(obeys_placement_law(scalapack_blocks{2, 1}, 9, 2));
static_assert(!placement_fits(scalapack_blocks{2, 2}, 9, 2));

namespace {

using caught::contains;
using caught::refusal;

constexpr auto doubled = [](auto a) { return 2.0 * a; };
template <class Mesh, int M, int N>
using step_on = compile<doubled, Mesh, input<double, shape<M, N>, split<"column", _>>>;  // not as the matrix is split

/// The process that has an element, and where in its columns, one block after the other: nothing of the library's.
struct place {
  int process, at;
};
place place_of(int global, int block, int first, int processes) {
  int owner = first, before[8] = {};
  for (int done = 0;; done += block, owner = (owner + 1) % processes) {
    if (global < done + block) return {owner, before[owner] + global - done};
    before[owner] += block;
  }
}

/// Passes the matrix in the format `in` through a step that doubles it. Compares the result in the format `out`. Tests
/// every block size and first process.
template <class Mesh, int M, int N>
void check(const int (&in)[9], const int (&out)[9], int grid_rows, int grid_columns, bool is_row_major) {
  using step = step_on<Mesh, M, N>;
  const scalapack_matrix a(in), b(out);
  const auto from = a.layout<Mesh, "row", "column">(), to = b.layout<Mesh, "row", "column">();
  std::atomic<int> wrong = 0;
  launch(threads{}, step::device_count, [&](auto& comm) {
    const int me = comm.device(0);
    const int row = is_row_major ? me / grid_columns : me % grid_rows, column = is_row_major ? me % grid_columns : me / grid_rows;
    const auto columns_of = [&](const int(&desc)[9]) {
      int most = 0;
      for (int j = 0; j < N; ++j)
        if (const auto c = place_of(j, desc[5], desc[7], grid_columns); c.process == column) most = c.at + 1;
      return static_cast<std::size_t>(most);
    };
    std::vector<double> mine(static_cast<std::size_t>(in[8]) * columns_of(in), -1),
        result(static_cast<std::size_t>(out[8]) * columns_of(out), -1);
    const auto each = [&](const int(&desc)[9], auto f) {
      for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
          const auto r = place_of(i, desc[4], desc[6], grid_rows), c = place_of(j, desc[5], desc[7], grid_columns);
          if (r.process == row && c.process == column) f(static_cast<std::size_t>(r.at + c.at * desc[8]), i * 100.0 + j);
        }
    };
    each(in, [&](std::size_t at, double x) { mine[at] = x; });
    step s;
    for (int again = 0; again < 2; ++again)
      s(comm, placed_view(from, a.block(mine.data(), from, me)), placed_view(to, b.block(result.data(), to, me)));
    std::vector<double> expected(result.size(), -1);
    each(out, [&](std::size_t at, double x) { expected[at] = 2 * x; });
    if (result != expected) ++wrong;
    const auto sent = bytes_sent_to_redistribute(from, layout_of_input<step, 0>(), me, 8) +
                      bytes_sent_to_redistribute(layout_of_output<step, 0>(), to, me, 8);
    if (s.bytes_sent() != sent) ++wrong;
  });
  CHECK(wrong == 0);
}
template <class Mesh, int M, int N>
void check_all(int grid_rows, int grid_columns, bool is_row_major) {
  for (const int block : {1, 2, 3, 50})
    for (int first = 0; first < grid_rows; ++first) {
      CAPTURE(block);
      CAPTURE(first);
      const int in[] = {1, 0, M, N, block, 2, first, grid_columns - 1, M + 3}, out[] = {1, 0, M, N, 2, block, 0, 0, M};
      check<Mesh, M, N>(in, out, grid_rows, grid_columns, is_row_major);
    }
}

}  // namespace

TEST_CASE("scalapack: blocks of any size, first processes, grids of both orders, more processes than blocks") {
  check_all<mesh<axis<"row", 2>, axis<"column", 2>>, 7, 5>(2, 2, true);
  check_all<mesh<axis<"row", 3>, axis<"column", 2>>, 10, 3>(3, 2, true);
  check_all<mesh<axis<"column", 2>, axis<"row", 3>>, 10, 9>(3, 2, false);
  check_all<mesh<axis<"row", 1>, axis<"column", 4>>, 1, 6>(1, 4, true);
}

TEST_CASE("scalapack: descriptors that are none are refused in words") {
  const auto says = [](const int(&desc)[9], const char* words) {
    return contains(refusal([&] { static_cast<void>(scalapack_matrix(desc)); }), words);
  };
  CHECK(says({501, 0, 4, 4, 1, 1, 0, 0, 4}, "DTYPE_ is 501; only 1, a dense matrix"));
  CHECK(says({1, 0, 4, 4, 0, 1, 0, 0, 4}, "MB_, NB_ and LLD_ at least 1"));
  CHECK(says({1, 0, -4, 4, 1, 1, 0, 0, 4}, "M_, N_, RSRC_ and CSRC_ are at least 0"));
  using grid = mesh<axis<"row", 2>, axis<"column", 2>>;
  const int good[] = {1, 0, 7, 5, 2, 2, 0, 0, 4}, other[] = {1, 0, 7, 6, 2, 2, 0, 0, 4},
            short_columns[] = {1, 0, 7, 5, 2, 2, 0, 0, 3}, outside[] = {1, 0, 7, 5, 2, 2, 2, 0, 4};
  const auto layout = scalapack_matrix(good).layout<grid, "row", "column">();
  double memory[20];
  const auto block = [&](const int(&desc)[9]) {
    const scalapack_matrix of(desc);
    return refusal([&] { static_cast<void>(of.block(memory, layout, 0)); });
  };
  CHECK(contains(block(other), "it is [7,6] by its descriptor, and the layout is of [7,5]"));
  CHECK(contains(block(short_columns), "LLD_ is 3 and device 0 holds 4 rows"));
  const scalapack_matrix of_other_grid(outside);
  CHECK(contains(refusal([&] { static_cast<void>(of_other_grid.layout<grid, "row", "column">()); }), "scalapack_blocks"));
}
