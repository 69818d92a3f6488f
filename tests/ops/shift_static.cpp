// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/explain.hpp>

#include "support/equal_plans.hpp"

// Shifts on the static path: a stencil and a convolution, compared with the plan of the run-time path.

using namespace gspmd;

namespace {
using grid = mesh<axis<"x", 2>, axis<"y", 3>>;
constexpr auto heat = [](auto t) {  // rows uneven over x, columns uneven over y
  const value around = shift(t, -1, along(0)) + shift(t, 1, along(0)) + shift(t, -1, along(1)) + shift(t, 1, along(1));
  return t + 0.125 * (around - 4.0 * t);
};
using heat_step = compile<heat, grid, input<double, shape<9, 7>, split<"x", "y">>>;
static_assert(heat_step::collectives == collectives{collective_permute<"x">, collective_permute<"y">});
// With two devices, each sends in one direction. With three, the one in the middle sends in both directions.
static_assert(heat_step::traffic.over("x").bytes == 3 * 8 && heat_step::traffic.over("y").bytes == 2 * 5 * 8);
static_assert(heat_step::traffic.messages == 3 && heat_step::input_shard<0>::local_extents == shape<5, 3>::value);

// One exchange for each dim, and one loop that reads at offsets. Nothing is copied, and the arena holds the halo
// buffers.
template <class Kernel>
constexpr std::size_t steps_of(const detail::plan_view& p) {
  std::size_t n = 0;
  for (const auto& s : p.steps) n += detail::is<Kernel>(s) ? 1 : 0;
  return n;
}
constexpr std::int64_t in_lines(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }
static_assert(heat_step::view.steps.size() == 3 && steps_of<detail::kernels::move>(heat_step::view) == 2 &&
              steps_of<detail::kernels::fused>(heat_step::view) == 1);
static_assert(heat_step::view.arena_bytes == in_lines(2 * 3 * 8) + in_lines(2 * 5 * 8));

// In a loop two states alternate: the output's memory and the same size in the arena.
constexpr auto heat_of = [](auto trips) {
  return [](auto t) {
    return fori_loop(
        decltype(trips)::value, [](auto, auto state) { return heat(state); }, t);
  };
};
template <std::int64_t Trips>
using heat_loop =
    compile<heat_of(std::integral_constant<std::int64_t, Trips>{}), grid, input<double, shape<9, 7>, split<"x", "y">>>;
template <std::int64_t Trips>
constexpr bool takes_turns() {
  const auto& p = heat_loop<Trips>::view;
  for (const auto& s : p.steps)  // the first state is the input; then nothing is copied
    if (detail::is<detail::kernels::copy>(s) && s.target >= 0 && &p.operand(s, 0) != &p.result(s)) return false;
  return steps_of<detail::kernels::move>(p) == 2 && steps_of<detail::kernels::fused>(p) == 1 &&
         p.arena_bytes == in_lines(5 * 3 * 8) + in_lines(8) + in_lines(2 * 3 * 8) + in_lines(2 * 5 * 8);
}
static_assert(takes_turns<0>() && takes_turns<1>() && takes_turns<6>());

// A convolution of 3 along the split dim: BXI,xIO->BXO with its gradients.
constexpr auto convolution = [](auto images, auto left, auto middle, auto right) {
  const value a = einsum<"bxi,io->bxo">(shift(images, -1, along(1)), left);
  const value b = einsum<"bxi,io->bxo">(images, middle);
  const value c = einsum<"bxi,io->bxo">(shift(images, 1, along(1)), right);
  return a + b + c;
};
constexpr auto trained = [](auto images, auto left, auto middle, auto right) {
  const value y = convolution(images, left, middle, right);
  return grad(sum(y * y), std::tuple{images, left});
};
using four = mesh<axis<"x", 4>>;
using images_in = input<double, shape<2, 10, 3>, split<_, "x", _>>;
using kernel_in = input<double, shape<3, 2>>;
using forward = compile<convolution, four, images_in, kernel_in, kernel_in, kernel_in>;
using backward = compile<trained, four, images_in, kernel_in, kernel_in, kernel_in>;
static_assert(forward::collectives == collectives{collective_permute<"x">, collective_permute<"x">});
static_assert(forward::traffic.bytes == 2 * (2 * 3 * 8));
static_assert(backward::output_shard<0>::local_extents == shape<2, 3, 3>::value);

// Nothing is sent along whole dims, or if the result is all zeros.
constexpr auto by_lines = [](auto x) { return std::tuple{shift(x, 2, along(1)), shift(x, 9, along(0)), shift(x, 0, along(0))}; };
static_assert(compile<by_lines, four, input<float, shape<9, 7>, split<"x", _>>>::collectives == collectives{});
// Farther than a shard: from the second and the third device after it.
constexpr auto far = [](auto x) { return shift(x, 5, along(0)); };
using far_step = compile<far, four, input<float, shape<8>, split<"x">>>;
static_assert(far_step::traffic.collectives == 1 && far_step::traffic.messages == 2 && far_step::traffic.bytes == 8);

std::vector<double> numbers(std::size_t n, std::size_t step_by) {
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i * step_by % 11) - 5;
  return x;
}
}  // namespace

TEST_CASE("a stencil of the heat equation") {
  const auto t = numbers(9 * 7, 7);
  const auto at = [&](std::int64_t r, std::int64_t c) {
    return r < 0 || r >= 9 || c < 0 || c >= 7 ? 0.0 : t[static_cast<std::size_t>(r * 7 + c)];
  };
  const auto check = [&](const auto& backend) {
    const auto got = run<heat_step>(backend, t);
    for (std::int64_t r = 0; r < 9; ++r)
      for (std::int64_t c = 0; c < 7; ++c) {
        const double around = at(r - 1, c) + at(r + 1, c) + at(r, c - 1) + at(r, c + 1);
        CHECK(got.data()[r * 7 + c] == at(r, c) + 0.125 * (around - 4.0 * at(r, c)));
      }
  };
  check(simulated{});
  check(threads{});
}

namespace {
// 25.9 MB per device, so stores bypass the caches. The other device reads them in the next iteration.
using wide_loop = compile<heat_of(std::integral_constant<std::int64_t, 3>{}), mesh<axis<"x", 2>>,
                          input<double, shape<1801, 3597>, split<"x", _>>>;
static_assert(static_cast<std::int64_t>(wide_loop::input_shard<0>::local_elems) * 8 >= detail::stream_from_bytes);
}  // namespace

TEST_CASE("a stencil whose results are larger than the caches") {
  constexpr std::int64_t rows = 1801, columns = 3597, room = columns + 2;
  auto got = numbers(rows * columns, 7);
  std::vector<double> want((rows + 2) * room), next = want;
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(got.data() + r * columns, columns, want.data() + (r + 1) * room + 1);
  for (int trip = 0; trip < 3; ++trip) {
    for (std::int64_t r = 1; r <= rows; ++r)
      for (std::int64_t i = r * room + 1; i <= r * room + columns; ++i) {
        const auto at = [&](std::int64_t k) { return want[static_cast<std::size_t>(i + k)]; };
        next[static_cast<std::size_t>(i)] = at(0) + 0.125 * (at(-room) + at(room) + at(-1) + at(1) - 4.0 * at(0));
      }
    std::swap(want, next);
  }
  const auto result = run<wide_loop>(threads{}, got);
  std::int64_t wrong = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      wrong += result.data()[r * columns + c] == want[static_cast<std::size_t>((r + 1) * room + c + 1)] ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("a stencil in a loop that does not copy its state") {
  const auto check = [&]<std::int64_t Trips>(const auto& backend, std::integral_constant<std::int64_t, Trips>) {
    auto want = numbers(9 * 7, 7);
    const auto first = want;
    for (std::int64_t trip = 0; trip < Trips; ++trip) {
      const auto t = want;
      const auto at = [&](std::int64_t r, std::int64_t c) {
        return r < 0 || r >= 9 || c < 0 || c >= 7 ? 0.0 : t[static_cast<std::size_t>(r * 7 + c)];
      };
      for (std::int64_t r = 0; r < 9; ++r)
        for (std::int64_t c = 0; c < 7; ++c) {
          const double around = at(r - 1, c) + at(r + 1, c) + at(r, c - 1) + at(r, c + 1);
          want[static_cast<std::size_t>(r * 7 + c)] = at(r, c) + 0.125 * (around - 4.0 * at(r, c));
        }
    }
    auto got = run<heat_loop<Trips>>(backend, first);
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(got.data()[i] == want[i]);
  };
  const auto check_all = [&](const auto& backend) {
    check(backend, std::integral_constant<std::int64_t, 0>{});
    check(backend, std::integral_constant<std::int64_t, 1>{});
    check(backend, std::integral_constant<std::int64_t, 6>{});
  };
  check_all(simulated{});
  check_all(threads{});
}

// Large shards are computed during the exchange of their halo buffers: first the interior, then the boundary.
using large_heat =
    compile<heat_of(std::integral_constant<std::int64_t, 3>{}), grid, input<double, shape<701, 500>, split<"x", "y">>>;
static_assert(steps_of<detail::kernels::start_move>(large_heat::view) == 2 &&
              steps_of<detail::kernels::finish_move>(large_heat::view) == 2 &&
              steps_of<detail::kernels::fused>(large_heat::view) == 2);
static_assert(large_heat::traffic.collectives == 2 * 3 && large_heat::traffic.bytes == 3 * (167 * 8 + 2 * 351 * 8));

TEST_CASE("a stencil is computed while its margins are exchanged") {
  const auto program = heat_of(std::integral_constant<std::int64_t, 3>{});
  const auto t = numbers(701 * 500, 7);
  const auto alone = dynamic::compile(program, dynamic::mesh({{"x", 1}}), dynamic::input<double>({701, 500})).run(serial{}, t);
  const auto p = dynamic::compile(program, dynamic::mesh({{"x", 2}, {"y", 3}}), dynamic::input<double>({701, 500}, {"x", "y"}));
  CHECK(detail::same_plan(p.view(), large_heat::view));
  CHECK(explain<large_heat>().find(": sends 1336 bytes, 3 times, while loop 1 computes") != std::string::npos);
  const auto check = [&](const double* got) {
    int wrong = 0;
    for (std::size_t i = 0; i < t.size(); ++i) wrong += got[i] != alone[0].data<double>()[i] ? 1 : 0;
    CHECK(wrong == 0);
  };
  check(run<large_heat>(threads{}, t).data());
  check(run<large_heat>(simulated{}, t).data());
  check(p.run(threads{}, t)[0].data<double>());
}

TEST_CASE("a device that fails while margins are under way leaves nobody waiting") {
  const auto program = [](value t) {
    return map(
        [](double x) {
          if (x > 100) throw error("more than 100");
          return x;
        },
        shift(t, -1, along(0)) + shift(t, 1, along(0)));
  };
  const auto p = dynamic::compile(program, dynamic::mesh({{"x", 3}}), dynamic::input<double>({600, 200}, {"x", ""}));
  CHECK(std::string(explain(p)).find("while loop 1 computes") != std::string::npos);
  auto t = numbers(600 * 200, 7);
  for (const std::size_t at : {std::size_t{300 * 200}, std::size_t{399 * 200}, std::size_t{0}}) {  // inside, at a boundary,
                                                                                                   // elsewhere
    const double kept = t[at];
    t[at] = 1000;
    for (int repeat = 0; repeat < 3; ++repeat) {
      CHECK_THROWS_WITH_AS(p.run(threads{}, t), doctest::Contains("more than 100"), error);
      CHECK_THROWS_WITH_AS(p.run(simulated{}, t), doctest::Contains("more than 100"), error);
    }
    t[at] = kept;
  }
}

// Offsets of several widths, also around the end, with a user's function and a reduction. Rows are short, long, longer
// than a block of the interpreter, uneven, or shorter than the width of the stencil.
constexpr auto wide = [](auto t) {
  const value beside = shift(t, -3, along(1)) + shift(t, 1, along(1)) - shift(t, 3, along(1)),
              round = roll(t, 1, along(0)) - roll(t, -2, along(1));
  const value mapped = shift(t, 1, along(0)) + map([](double x) { return x * 0.5; }, shift(t, -1, along(1)));
  return std::tuple{beside + 2.0 * round, mapped, sum(t, {0})};
};
template <std::int64_t Rows, std::int64_t Columns, class Split>
void check_wide(Split, const std::vector<std::string>& axes) {
  using step = compile<wide, mesh<axis<"x", 2>>, input<double, shape<Rows, Columns>, Split>>;
  const auto t = numbers(static_cast<std::size_t>(Rows * Columns), 7);
  const auto at = [&](std::int64_t r, std::int64_t c) {
    return r < 0 || r >= Rows || c < 0 || c >= Columns ? 0.0 : t[static_cast<std::size_t>(r * Columns + c)];
  };
  std::vector<double> want[3] = {t, t, std::vector<double>(static_cast<std::size_t>(Columns))};
  for (std::int64_t r = 0; r < Rows; ++r)
    for (std::int64_t c = 0; c < Columns; ++c) {
      const auto i = static_cast<std::size_t>(r * Columns + c);
      const double around = at((r + Rows - 1) % Rows, c) - at(r, (c + 2) % Columns);
      want[0][i] = at(r, c - 3) + at(r, c + 1) - at(r, c + 3) + 2.0 * around;
      want[1][i] = at(r + 1, c) + 0.5 * at(r, c - 1);
      want[2][static_cast<std::size_t>(c)] += at(r, c);
    }
  const auto check = [&](const auto& backend) {
    const auto [a, b, s] = run<step>(backend, t);
    const auto program = dynamic::compile(wide, dynamic::mesh({{"x", 2}}), dynamic::input<double>({Rows, Columns}, axes));
    const auto d = program.run(backend, t);
    const double* const got[] = {a.data(), b.data(), s.data()};
    for (std::size_t k = 0; k < 3; ++k) {
      int wrong = 0;
      for (std::size_t i = 0; i < want[k].size(); ++i)
        wrong += got[k][i] != want[k][i] || d[k].template data<double>()[i] != want[k][i] ? 1 : 0;
      CAPTURE(k);
      CHECK(wrong == 0);
    }
  };
  CAPTURE(Rows);
  CAPTURE(Columns);
  check(simulated{});
  check(threads{});
}
TEST_CASE("stencils of several widths, on rows of many lengths") {
  const auto check = []<std::int64_t Rows, std::int64_t Columns>(std::integer_sequence<std::int64_t, Rows, Columns>) {
    check_wide<Rows, Columns>(split<"x", _>{}, {"x", ""});
    check_wide<Rows, Columns>(split<_, "x">{}, {"", "x"});
  };
  check(std::integer_sequence<std::int64_t, 3, 2500>{});
  check(std::integer_sequence<std::int64_t, 5, 700>{});
  check(std::integer_sequence<std::int64_t, 6, 140>{});
  check(std::integer_sequence<std::int64_t, 4, 13>{});
  check(std::integer_sequence<std::int64_t, 3, 4>{});
}

TEST_CASE("a convolution and its gradients") {
  const auto images = numbers(2 * 10 * 3, 7);
  const std::vector<double> kernel[] = {numbers(3 * 2, 3), numbers(3 * 2, 5), numbers(3 * 2, 4)};
  std::vector<double> y(2 * 10 * 2), by_images(2 * 10 * 3), by_left(3 * 2);
  const auto each_term = [&](auto visit) {  // output, image, position in the kernel, weight
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t x = 0; x < 10; ++x)
        for (std::int64_t k = 0; k < 3; ++k)
          for (std::int64_t i = 0; i < 3 && x + k - 1 >= 0 && x + k - 1 < 10; ++i)
            for (std::int64_t o = 0; o < 2; ++o)
              visit(static_cast<std::size_t>((b * 10 + x) * 2 + o), static_cast<std::size_t>((b * 10 + x + k - 1) * 3 + i),
                    static_cast<std::size_t>(k), static_cast<std::size_t>(i * 2 + o));
  };
  each_term([&](std::size_t to, std::size_t from, std::size_t k, std::size_t w) { y[to] += images[from] * kernel[k][w]; });
  each_term([&](std::size_t to, std::size_t from, std::size_t k, std::size_t w) {
    by_images[from] += 2 * y[to] * kernel[k][w];
    if (k == 0) by_left[w] += 2 * y[to] * images[from];
  });
  const auto check = [&](const auto& backend) {
    const auto got = run<forward>(backend, images, kernel[0], kernel[1], kernel[2]);
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(got.data()[i] == y[i]);
    const auto [images_got, left_got] = run<backward>(backend, images, kernel[0], kernel[1], kernel[2]);
    for (std::size_t i = 0; i < by_images.size(); ++i) CHECK(images_got.data()[i] == by_images[i]);
    for (std::size_t i = 0; i < by_left.size(); ++i) CHECK(left_got.data()[i] == by_left[i]);
  };
  check(simulated{});
  check(threads{});
}

TEST_CASE("one planner") {
  const auto program = dynamic::compile(heat, dynamic::mesh({{"x", 2}, {"y", 3}}), dynamic::input<double>({9, 7}, {"x", "y"}));
  CHECK(reference::difference(heat_step::view, program.view()) == "");
}

TEST_CASE("what explain says, and what is refused") {
  const auto text = explain<far_step>();
  CHECK(text.find("shift(dim 0, +5)") != std::string::npos);
  const auto near = explain<heat_step>();
  CHECK(near.find("shift(dim 0, read at -1)") != std::string::npos);
  CHECK(near.find("shift(dim 1, read at +1)") != std::string::npos);
  CHECK(text.find("collective_permute over x of the boundaries of #0: sends 8 bytes\n") != std::string::npos);
  CHECK(text.find("2 messages\n") != std::string::npos);
  for (const int dim : {-3, 2, 300}) {
    std::string refused;
    try {
      dynamic::builder b(dynamic::mesh({{"x", 4}}));
      b.output(shift(b.input(dynamic::input<float>({8, 3})), 1, along(dim)));
      static_cast<void>(b.compile());
    } catch (const error& e) {
      refused = e.what();
    }
    CHECK(refused.find("shift at shift_static.cpp:") != std::string::npos);
    CHECK(refused.find(": dim " + std::to_string(dim) + " is not a dim of [8,3]; dims count from 0") != std::string::npos);
  }
}
