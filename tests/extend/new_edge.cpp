// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: compiled
// alone: yes
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/session.hpp>
#include <gspmd/external/ghosted_program.hpp>
#include <gspmd/external/placed_view.hpp>
#include <gspmd/external/program.hpp>
#include <gspmd/gspmd.hpp>

#include "extend/new_edge/device_buffer.hpp"
#include "extend/new_edge/tiles.hpp"
#include "support/error_of.hpp"

// Edges that are defined wholly here: whole tensors, shards and blocks of another layout, in compiled programs and in
// programs that are planned at run time.

using namespace gspmd;
using caught::contains;
using caught::refusal;

// An edge is refused if it omits any of its facts.
#define WITHOUT(fact)                            \
  struct without_##fact;                         \
  struct view_without_##fact : new_edge::tiles { \
    using edge = without_##fact;                 \
  };                                             \
  struct without_##fact : new_edge::tiles_edge { \
    using view = view_without_##fact;            \
    static constexpr char fact = 0;              \
  };                                             \
  static_assert(!extend::complete_edge<without_##fact>);
WITHOUT(name)
WITHOUT(memory)
WITHOUT(layout)
WITHOUT(fills_ghost_cells)
WITHOUT(shape)
WITHOUT(has_own_elements)
WITHOUT(read)
WITHOUT(write)
#undef WITHOUT
struct other_edge;
struct other_view : new_edge::tiles {
  using edge = other_edge;
};
struct other_edge : new_edge::tiles_edge {
  using view = other_view;
};
static_assert(extend::complete_edge<other_edge> && extend::complete_edge<new_edge::buffer_edge>);
// Read-only elements need no `write`.
struct read_edge;
struct read_view : new_edge::tiles {
  using element = const double;
  using edge = read_edge;
};
struct read_edge : new_edge::tiles_edge {
  using view = read_view;
  static constexpr char write = 0;
};
static_assert(extend::complete_edge<read_edge>);
// A view whose ghost cells the step fills. It needs strides, and has none.
struct filled_edge;
struct filled_view : new_edge::tiles {
  using edge = filled_edge;
};
struct filled_edge : new_edge::tiles_edge {
  using view = filled_view;
  static constexpr bool fills_ghost_cells = true;
};
static_assert(extend::complete_edge<filled_edge>);
// An edge states its own view, and has the base edge_struct.
struct wrong_view_edge : new_edge::tiles_edge {};
static_assert(!extend::complete_edge<wrong_view_edge>);
static_assert(!detail::is_external_view<std::vector<double>> && detail::is_external_view<new_edge::tiles>);

namespace {

constexpr auto program = [](auto x) { return x * 2.0 + 1.0; };
using step = compile<program, mesh<axis<"x", 2>>, input<double, shape<7, 5>, split<"x", _>>>;
dynamic::builder written() {
  return dynamic::build(program, dynamic::mesh({{"x", 2}}), dynamic::input<double>({7, 5}, {"x", ""}));
}
dynamic::program plan() { return written().compile(); }

/// A matrix in tiles of 3 x 2 elements, with the element 10 i + j at row i and column j.
struct matrix {
  std::vector<double> memory;
  new_edge::tiles view;
  matrix(std::int64_t rows, std::int64_t columns, std::int64_t first_row = 0)
      : memory(200, -1), view{memory.data(), rows, columns, 3, 2} {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) view(i, j) = static_cast<double>(10 * (first_row + i) + j);
  }
  matrix(const matrix&) = delete;
};

int wrong_elements(const auto& y, std::int64_t rows, std::int64_t first_row = 0) {
  int wrong = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < 5; ++j) wrong += y(i, j) != static_cast<double>(20 * (first_row + i) + 2 * j + 1);
  return wrong;
}

}  // namespace

TEST_CASE("a view of the tests' own is read and written in place of whole arrays") {
  const matrix x(7, 5), y(7, 5), z(7, 5);
  const auto dense = [](const double* data) { return [data](std::int64_t i, std::int64_t j) { return data[i * 5 + j]; }; };
  CHECK(wrong_elements(dense(run<step>(threads{}, x.view).data()), 7) == 0);
  CHECK(wrong_elements(dense(run(plan(), threads{}, x.view)[0].data<double>()), 7) == 0);
  run_into<step>(threads{}, y.view, x.view);
  run_into(plan(), simulated{}, z.view, x.view);
  CHECK(wrong_elements(y.view, 7) == 0);
  CHECK(wrong_elements(z.view, 7) == 0);
  run_into<step>(threads{}, x.view, x.view);  // the result is copied after all devices have read the argument
  CHECK(wrong_elements(x.view, 7) == 0);
  simulated_communicator comm(2);
  CHECK(collect(comm, distribute<step, 0>(comm, y.view))[3 * 5 + 4] == 20 * 3 + 2 * 4 + 1);
}

TEST_CASE("a view of the tests' own is a shard, with or without its padding") {
  const auto planned = plan();
  launch(threads{}, 2, [&](auto& comm) {
    const std::int64_t first = 4 * comm.device(0), rows = comm.device(0) == 0 ? 4 : 3;
    for (const std::int64_t held : {rows, std::int64_t{4}}) {
      const matrix x(held, 5, first), y(held, 5), z(held, 5);
      step s;
      dynamic::session at_run_time(planned);
      for (int again = 0; again < 2; ++again) s(comm, x.view, y.view);
      at_run_time(comm, x.view, z.view);
      CHECK(s.copied_bytes() == 2 * held * 5 * 8);
      CHECK(at_run_time.copied_bytes() == 2 * held * 5 * 8);
      CHECK(wrong_elements(y.view, rows, first) == 0);
      CHECK(wrong_elements(z.view, rows, first) == 0);
      std::vector<double> dense(20);
      s(comm, x.view, dense);
      CHECK(dense[5] == 20 * (static_cast<double>(first) + 1) + 1);
    }
    // errors are those of other views
    const matrix x(rows, 5), other(5, rows);
    dynamic::session s(planned);
    CHECK(contains(refusal([&] { s(comm, other.view, x.view); }), "step: input 0 is [4,5] on every device"));
    const ghosted_program listed(written(), {{1, 0}, {0, 0}});
    dynamic::session ghosted(listed);
    CHECK(contains(refusal([&] { ghosted(comm, filled_view{x.view}, x.view); }), "the elements of a tiles have no strides"));
  });
}

TEST_CASE("results in overlapping tiles are refused") {
  using two = compile<[](auto x) { return std::tuple{x * 2.0, x * 3.0}; }, mesh<axis<"x", 1>>, input<double, shape<4, 5>>>;
  const matrix x(4, 5), y(4, 5);
  simulated_communicator comm(1);
  two s;
  const new_edge::tiles last{y.view.data + 30, 4, 5, 3, 2};  // the last 6 of the 36 elements of y
  CHECK(contains(refusal([&] { s(comm, x.view, y.view, last); }), "outputs 0 and 1 are given memory that overlaps"));
  const new_edge::tiles after{y.view.data + 36, 4, 5, 3, 2};
  s(comm, x.view, std::tuple{y.view, after});
  CHECK(y.view(3, 4) == 2 * 34);
  CHECK(after(3, 4) == 3 * 34);
}

TEST_CASE("a view without addresses that has a layout of its own") {
  const auto layout = layout_of_input<step, 0>(ragged_list{{1, 6}});
  const auto planned = plan();
  launch(threads{}, 2, [&](auto& comm) {
    const std::int64_t first = comm.device(0), rows = comm.device(0) == 0 ? 1 : 6;
    new_edge::accelerator x(rows * 5), y(rows * 5), z(rows * 5);
    for (std::int64_t i = 0; i < rows * 5; ++i) x.copy_in(i, static_cast<double>(10 * (first + i / 5) + i % 5));
    const auto view = [&](new_edge::accelerator& memory) { return new_edge::buffer_view{&memory, &layout, rows, 5}; };
    step s;
    dynamic::session at_run_time(planned);
    for (int again = 0; again < 2; ++again) s(comm, view(x), view(y));
    at_run_time(comm, view(x), view(z));
    CHECK(s.bytes_sent() == 3 * 5 * 8);  // device 0 lacks 3 rows of the input, and device 1 lacks these rows of the result
    CHECK(at_run_time.bytes_sent() == s.bytes_sent());
    const auto element = [](const new_edge::accelerator& memory) {
      return [&memory](std::int64_t i, std::int64_t j) {
        double found = 0;
        memory.copy_out(i * 5 + j, &found);
        return found;
      };
    };
    CHECK(wrong_elements(element(y), rows, first) == 0);
    CHECK(wrong_elements(element(z), rows, first) == 0);
    // tiles have the layout of the step, or one that the call passes
    const matrix tiled(rows, 5, first), back(rows, 5);
    step compiled;
    auto result = make_result<step, 0>(comm);
    auto brought = to_step<step, 0>(comm, layout, tiled.view);
    compiled(comm, brought, result);
    from_step(comm, result, layout, back.view);
    CHECK(wrong_elements(back.view, rows, first) == 0);
    CHECK(contains(refusal([&] { s(comm, view(x), new_edge::buffer_view{&y, &layout, 2, 5}); }), "and the view given is [2,5]"));
  });
}
