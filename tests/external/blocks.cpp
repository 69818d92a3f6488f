// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// alone: yes
// Blocks that other codes have distributed, in their memory: to steps and back, and their ghost layers.
#include "gspmd/external/blocks.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/external/ghost_exchange.hpp"
#include "gspmd/external/placed_view.hpp"
#include "gspmd/external/scalapack.hpp"
#include "gspmd/gspmd.hpp"
#include "support/block_checks.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"

using namespace gspmd;

static_assert(obeys_placement_law<balanced>());

namespace {

using caught::contains;
using caught::refusal;

using grid = mesh<axis<"x", 2>, axis<"y", 2>>;
constexpr auto twice = [](auto u) { return u * 2; };
using step = compile<twice, grid, input<double, shape<7, 5>, split<"x,y", _>>>;

}  // namespace

TEST_CASE("balanced blocks are those of MPI codes") {
  const auto sizes = [](std::int64_t extent, std::int64_t parts) {
    std::vector<std::int64_t> list;
    for (std::int64_t p = 0; p < parts; ++p) list.push_back(balanced::local_extent(extent, parts, p));
    return list;
  };
  CHECK(sizes(9, 4) == std::vector<std::int64_t>{3, 2, 2, 2});
  CHECK(sizes(2, 4) == std::vector<std::int64_t>{1, 1, 0, 0});
  CHECK(sizes(8, 4) == std::vector<std::int64_t>{2, 2, 2, 2});
}

TEST_CASE("a step takes and gives balanced blocks, wherever they lie") {
  const auto theirs = layout_of_input<step, 0>(balanced{});  // 2, 2, 2, 1 rows, as the step's
  const placed_layout uneven = layout_on<grid, shape<7, 5>, split<"x", "y">>(ragged_list{{1, 6}}, balanced{});
  CHECK_EQ(theirs.held(3, along(0)).size(), 1u);
  CHECK_EQ(bytes_sent_to_redistribute(theirs, layout_of_input<step, 0>(), 0, 8), 0);
  // of device 3's 6 rows of 2, rows 1 and 2 to 5 are the step's devices' 0 to 2
  CHECK_EQ(bytes_sent_to_redistribute(uneven, layout_of_input<step, 0>(), 3, 8), 5 * 2 * 8);
  launch(threads{}, 4, [&](auto& comm) {
    const int me = comm.device(0);
    step s;
    const auto check = [&](const auto& layout) {
      const auto rows = static_cast<std::int64_t>(layout.held(me, along(0)).size()),
                 cols = static_cast<std::int64_t>(layout.held(me, along(1)).size());
      std::vector<double> memory(100, -1);
      const strided_view<double> mine(memory.data(), {rows, cols}, {1, rows + 1});
      const auto each = [&](auto visit) {
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < cols; ++j)
            visit(memory[static_cast<std::size_t>(i + j * (rows + 1))],
                  static_cast<double>(layout.held(me, along(0))[static_cast<std::size_t>(i)] * 5 +
                                      layout.held(me, along(1))[static_cast<std::size_t>(j)]));
      };
      each([](double& element, double number) { element = number; });
      const auto x = to_step<step, 0>(comm, layout, strided_view<const double>(mine));
      auto y = make_result<step, 0>(comm);
      s(comm, x, y);
      from_step(comm, y, layout, mine);
      bool is_right = true;
      each([&](double element, double number) { is_right = is_right && element == 2 * number; });
      CHECK(is_right);
      CHECK(memory[static_cast<std::size_t>(rows)] == -1);
    };
    check(theirs);
    check(uneven);
    check(layout_of_output<step, 0>(block_cyclic<2>{}, block_cyclic<1>{}));
    check(layout_on<grid, shape<7, 5>, split<_, "y,x">>(contiguous{}, balanced{}));
    check(layout_on<grid, shape<7, 5>, split<_, "y">>());  // a replica along x
    std::vector<double> memory(35);
    CHECK(contains(refusal([&] {
                     to_step<step, 0>(comm, theirs, strided_view(memory.data(), {7, 5}));
                   }),
                   me < 3 ? " is [2,5] and the view given is [7,5]" : "the block of device 3 is [1,5]"));
    const auto y = make_result<step, 0>(comm);
    const std::int64_t rows = me < 3 ? 2 : 1;
    CHECK(contains(refusal([&] {
                     from_step(comm, y, theirs, strided_view(memory.data(), {rows, 5}, {5, 0}));
                   }),
                   "several indices of the view given have the same element"));
  });
  simulated_communicator all(4);
  std::vector<double> memory(10);
  CHECK(contains(refusal([&] { to_step<step, 0>(all, theirs, strided_view(memory.data(), {2, 5})); }), "holds 4 devices"));
  simulated_communicator one(1);
  const sharded_array<double> y(1, *step::view.mesh, step::view.value(step::view.outputs[0]));
  CHECK(contains(refusal([&] {
                   from_step(one, y, theirs, strided_view(memory.data(), {2, 5}));
                 }),
                 "the mesh has 4 devices but the communicator has 1 rank"));
}

TEST_CASE("a step takes blocks of another code directly, as its other arguments are") {
  using two = compile<[](auto u, auto v) {
    return std::tuple{u * 2 + v, sum(v, 1)};
  },
                      grid, input<double, shape<7, 5>, split<"x,y", _>>, input<double, shape<7, 5>, split<"x,y", _>>>;
  const auto theirs = layout_of_input<two, 0>(ragged_list{{0, 4, 1, 2}});
  const auto others = layout_on<grid, shape<7, 5>, split<"x", "y">>(balanced{}, balanced{});
  launch(threads{}, 4, [&](auto& comm) {
    const int me = comm.device(0);
    two s;
    const auto rows = static_cast<std::int64_t>(theirs.held(me, along(0)).size());
    const auto other_rows = static_cast<std::int64_t>(others.held(me, along(0)).size()),
               cols = static_cast<std::int64_t>(others.held(me, along(1)).size());
    std::vector<double> u(40), v(60), next(60, -1), sums(2);
    const auto number = [&](std::int64_t i, std::int64_t j) { return static_cast<double>(i * 5 + j); };
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < 5; ++j)
        u[static_cast<std::size_t>(i + j * (rows + 1))] = number(theirs.held(me, along(0))[static_cast<std::size_t>(i)], j);
    const auto mine = two::input_shard<1>::valid_range(me, along(0));
    for (std::int64_t i = 0; i < mine.size(); ++i)
      for (std::int64_t j = 0; j < 5; ++j) v[static_cast<std::size_t>(i * 6 + j)] = 100 * number(mine.begin + i, j);
    const placed_view<const double, ragged_list> block(theirs, strided_view<double>(u.data(), {rows, 5}, {1, rows + 1}));
    const placed_view block_out(others, strided_view(next.data(), {other_rows, cols}));
    const strided_view rows_of_v(v.data(), {mine.size(), 5}, {6, 1});
    for (int again = 0; again < 2; ++again) s(comm, block, rows_of_v, block_out, sums);
    CHECK_EQ(s.bytes_sent(), bytes_sent_to_redistribute(theirs, layout_of_input<two, 0>(), me, 8) +
                                 bytes_sent_to_redistribute(layout_of_output<two, 0>(), others, me, 8));
    CHECK_EQ(s.copied_bytes(), mine.size() == 1 ? 5 * 8 : mine.size() * 5 * 8);
    bool is_right = true;
    for (std::int64_t i = 0; i < other_rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        is_right = is_right && next[static_cast<std::size_t>(i * cols + j)] ==
                                   102 * number(others.held(me, along(0))[static_cast<std::size_t>(i)],
                                                others.held(me, along(1))[static_cast<std::size_t>(j)]);
    CHECK(is_right);
    CHECK(next[static_cast<std::size_t>(other_rows * cols)] == -1);
    CHECK(sums[0] == 100 * (5 * number(mine.begin, 0) + 10));
    CHECK(contains(refusal([&] {
                     s(comm, placed_view(others, strided_view(u.data(), {1, 1})), rows_of_v, block_out, sums);
                   }),
                   "step: the block of device"));
    // two results in the same memory
    const auto own = layout_of_output<two, 1>(balanced{});
    const auto held = static_cast<std::int64_t>(own.held(me, along(0)).size());
    const auto overlap = [&](const auto& sums_given) {
      return contains(refusal([&] { s(comm, block, rows_of_v, block_out, sums_given); }),
                      "step: outputs 0 and 1 are given memory that overlaps");
    };
    CHECK(overlap(placed_view(own, strided_view(next.data(), {held}))));
    CHECK(overlap(strided_view(next.data(), {held})));
    CHECK(overlap(next.data()));
    std::fill(sums.begin(), sums.end(), 0);
    s(comm, block, rows_of_v, block_out, placed_view(own, strided_view(sums.data(), {held})));
    CHECK(sums[0] == 100 * (5 * number(mine.begin, 0) + 10));
  });
}

TEST_CASE("a program compiled at run time takes blocks of another code, as its other arguments are") {
  const auto f = [](value u, value v) { return std::tuple{u * 2 + v, sum(v, 1)}; };
  for (const int devices : {1, 3, 4}) {
    const dynamic::mesh m({{"x", devices}});
    const auto two = dynamic::compile(f, m, dynamic::input<double>({7, 5}, {"x", ""}), dynamic::input<double>({7, 5}, {"x", ""}));
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(devices), 0);
    sizes.back() = 7;
    const auto theirs = layout_of_input(two, 0, ragged_list{sizes});  // all rows on the last device
    const auto others = layout_on(m, {7, 5}, {"", "x"}, contiguous{}, balanced{});
    const auto own_sums = layout_of_output(two, 1, balanced{});
    const int matrix[] = {1, 0, 7, 5, 2, 3, devices - 1, 0, 9};
    const scalapack_matrix cyclic(matrix);
    const dynamic::mesh rows_and_one({{"x", devices}, {"one", 1}});
    const auto distributed = cyclic.layout(rows_and_one, "x", "one");
    launch(threads{}, devices, [&](auto& comm) {
      const int me = comm.device(0);
      const auto number = [](std::int64_t i, std::int64_t j) { return static_cast<double>(i * 5 + j); };
      const auto size_of = [&](const auto& layout, int d) { return static_cast<std::int64_t>(layout.held(me, along(d)).size()); };
      const auto each = [&](const auto& layout, const auto& view, auto visit) {
        for (std::int64_t i = 0; i < view.extent(0); ++i)
          for (std::int64_t j = 0; j < view.extent(1); ++j)
            visit(view.data()[i * view.stride(0) + j * view.stride(1)],
                  number(layout.held(me, along(0))[static_cast<std::size_t>(i)],
                         layout.held(me, along(1))[static_cast<std::size_t>(j)]));
      };
      std::vector<double> u(80), v(80), next(60, -1), sums(8, -1);
      const strided_view mine(u.data(), {size_of(theirs, 0), 5}, {1, size_of(theirs, 0) + 1});
      each(theirs, mine, [](double& element, double n) { element = n; });
      const auto columns = cyclic.block(v.data(), distributed, me);
      each(distributed, columns, [](double& element, double n) { element = 100 * n; });
      const strided_view out(next.data(), {size_of(others, 0), size_of(others, 1)});
      const placed_view sums_out(own_sums, strided_view(sums.data(), {size_of(own_sums, 0)}));
      dynamic::session s(two);
      for (int again = 0; again < 2; ++again)
        s(comm, placed_view(theirs, strided_view<const double>(mine)), placed_view(distributed, columns),
          placed_view(others, out), sums_out);
      bool is_right = true;
      each(others, out, [&](double element, double n) { is_right = is_right && element == 102 * n; });
      for (std::int64_t i = 0; i < size_of(own_sums, 0); ++i) {
        const auto row = own_sums.held(me, along(0))[static_cast<std::size_t>(i)];
        is_right = is_right && sums[static_cast<std::size_t>(i)] == 100 * (5 * number(row, 0) + 10);
      }
      CHECK(is_right);
      CHECK_EQ(s.bytes_sent(), bytes_sent_to_redistribute(theirs, layout_of_input(two, 0), me, 8) +
                                   bytes_sent_to_redistribute(distributed, layout_of_input(two, 1), me, 8) +
                                   bytes_sent_to_redistribute(layout_of_output(two, 0), others, me, 8) +
                                   bytes_sent_to_redistribute(layout_of_output(two, 1), own_sums, me, 8));
      // together with sharded arrays and dense shards
      auto second = distribute(comm, two, 1, std::vector<double>(35, 1.0));
      auto kept = make_result<double>(comm, two, 0);
      s(comm, placed_view(theirs, mine), second, kept, sums_out);
      for (std::int64_t i = 0; i < size_of(own_sums, 0); ++i) CHECK(sums[static_cast<std::size_t>(i)] == 5);
      const auto says = [&](const char* words, auto&&... given) { CHECK(contains(refusal([&] { s(comm, given...); }), words)); };
      const placed_view block(theirs, mine);
      says("step: the block of device", placed_view(theirs, strided_view(u.data(), {9, 5})), second, kept, sums_out);
      says("step: input 0 is f64 and the view given is of f32",
           placed_view(theirs, strided_view(reinterpret_cast<float*>(u.data()), {1, 1})), second, kept, sums_out);
      says("step: output 1 is given a const array, and outputs are written", block, second, kept,
           placed_view(own_sums, strided_view<const double>(sums_out.block())));
      says("step: the program has 2 inputs and 2 outputs and the call gives 3 tensors", block, second, kept);
      if (size_of(own_sums, 0) > 0)
        says("step: outputs 0 and 1 are given memory that overlaps", block, second, kept,
             placed_view(own_sums, strided_view(kept.data(), {size_of(own_sums, 0)})));
    });
    CHECK(contains(refusal([&] { static_cast<void>(layout_of_input(two, 2)); }), "input 2 does not exist"));
    CHECK(contains(refusal([&] { static_cast<void>(layout_on(m, {7, 5}, {"x", "z"})); }), "layout_on: "));
  }
}

TEST_CASE("ghost layers get what others hold, corners too; what lies outside stays") {
  for (const auto& sizes : {std::vector<int>{1}, std::vector<int>{3}, std::vector<int>{2, 2}, std::vector<int>{3, 2}}) {
    const auto mesh = layouts::mesh_of(sizes);
    const auto devices = static_cast<int>(mesh.device_count());
    simulated_communicator comm(devices);
    int checked = 0;
    const auto check = [&](const auto& layout, const detail::extents& widths) {
      CHECK_EQ(blocks::wrong_ghosts(comm, layout, widths, {}), 0);
      CHECK_EQ(blocks::wrong_ghosts(comm, layout, widths, {true}), 0);
      if (layout.shape().count > 1) {
        CHECK_EQ(blocks::wrong_ghosts(comm, layout, widths, {false, true}), 0);
        CHECK_EQ(blocks::wrong_ghosts(comm, layout, widths, {true, true}), 0);
      }
      ++checked;
    };
    for (const auto& shape : {detail::extents{7}, detail::extents{2}, detail::extents{5, 4}, detail::extents{1, 6}})
      for (const auto& s : layouts::all_shardings(mesh, shape.count)) {
        const detail::extents widths[] = {detail::extents(shape.count, 1), detail::extents(shape.count, 3),
                                          shape.count == 1 ? detail::extents{0} : detail::extents{0, 2}};
        for (const auto& w : widths) {
          check(placed_layout(mesh, shape, s), w);
          check(placed_layout(mesh, shape, s, balanced{}), w);
        }
      }
    CHECK(checked > 20);
  }
  // ownership ranges of a DMDA: uneven, narrower than the layers, and a device that has nothing
  const auto pod = layouts::mesh_of({3, 2});
  simulated_communicator six(6);
  for (const auto& lx : {ragged_list{{5, 3, 1}}, ragged_list{{5, 0, 4}}})
    for (const auto& widths : {detail::extents{1, 1, 0}, detail::extents{2, 3, 1}})
      for (const bool is_periodic : {false, true}) {
        const placed_layout dmda(pod, {9, 5, 2}, layouts::split({{0}, {1}, {}}), lx, ragged_list{{1, 4}});
        if (!is_periodic) CHECK_EQ(blocks::wrong_ghosts(six, dmda, widths, {}), 0);
        else CHECK_EQ(blocks::wrong_ghosts(six, dmda, widths, {true, false, true}), 0);
      }
  const auto line = layouts::mesh_of({3});
  // 9 x 4 in 3, 3, 3 rows
  const ghost_exchange rows(placed_layout(line, {9, 4}, layouts::split({{0}, {}})), {1, 0});
  CHECK_EQ(rows.bytes_sent(0, 8), 4 * 8);
  CHECK_EQ(rows.bytes_sent(1, 8), 2 * 4 * 8);
  CHECK_EQ(rows.messages_sent(1), 2);
  CHECK(contains(refusal([&] { static_cast<void>(rows.bytes_sent(3, 8)); }),
                 "ghost_exchange: device 3 does not exist; the mesh has 3 devices"));
  CHECK(contains(refusal([&] { static_cast<void>(rows.messages_sent(-1)); }), "ghost_exchange: device -1 does not exist"));
  const ghost_exchange round(placed_layout(line, {9, 4}, layouts::split({{0}, {}})), {1, 1}, {true, true});
  CHECK_EQ(round.bytes_sent(0, 8), 2 * 6 * 8);  // corners too; the sides are its own
  const placed_layout cyclic(line, {9, 4}, layouts::split({{0}, {}}), block_cyclic<1>{});
  const placed_layout plain(line, {9, 4}, layouts::split({{0}, {}}));
  CHECK(contains(refusal([&] { ghost_exchange(cyclic, {1, 0}); }), "the parts of dim 0 are no contiguous indices"));
  CHECK(contains(refusal([&] { ghost_exchange(plain, {1}); }), "the tensor has 2 dims and the call gives 1 widths"));
  CHECK(contains(refusal([&] { ghost_exchange(plain, {1, -1}); }), "the width of dim 1 is negative"));
  std::atomic<int> wrong{0};
  launch(threads{}, 3, [&](auto& comm) {
    wrong += blocks::wrong_ghosts(comm, plain, {1, 1}, {true});
    wrong += blocks::wrong_ghosts(comm, placed_layout(line, {2, 4}, layouts::split({{0}, {}}), balanced{}), {2, 0}, {false});
    std::vector<double> memory(50);
    ghost_exchange fill(plain, {1, 0});
    CHECK(contains(refusal([&] {
                     fill(comm, strided_view(memory.data(), {3, 4}));
                   }),
                   " is [5,4], ghost layers included, and the view given is [3,4]"));
    CHECK(contains(refusal([&] { fill(comm, strided_view(memory.data(), {5, 4}, {0, 1})); }), "have the same element"));
  });
  CHECK_EQ(wrong, 0);
  simulated_communicator all(3);
  std::vector<double> memory(50);
  ghost_exchange fill(plain, {1, 0});
  CHECK(contains(refusal([&] { fill(all, strided_view(memory.data(), {5, 4})); }), "holds 3 devices and the call gives 1 block"));
}
