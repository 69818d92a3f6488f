// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// alone: yes
// General and complex matrices over a grid of devices. Solutions satisfy their equations for pivots in any rows, and
// nothing is gathered.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/linalg/block_cyclic.hpp>

#include "support/error_of.hpp"
#include "support/random_program.hpp"

namespace over_grid {

using namespace gspmd;
using std::int64_t;

template <class T>
T drawn(reference::random_numbers& random) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(random.between(-1000, 1000)) / T(1000);
  } else {
    using part = typename T::value_type;
    const part re = drawn<part>(random);
    return T(re, drawn<part>(random));
  }
}
std::vector<const void*> pointers(const auto&... x) { return {static_cast<const void*>(x.data())...}; }

enum class kind : int { random, few_in_a_row, first_columns_below, tiny_diagonal, count };

/// Returns a matrix far from singular, with pivots outside of the diagonal.
template <class T>
std::vector<T> matrix_of(kind is, int64_t n, reference::random_numbers& random) {
  std::vector<T> a(static_cast<std::size_t>(n * n));
  const auto at = [&](int64_t i, int64_t j) -> T& { return a[static_cast<std::size_t>(i * n + j)]; };
  for (auto& e : a) e = is == kind::few_in_a_row ? T(0) : drawn<T>(random);
  for (int64_t i = 0; i < n; ++i) {
    if (is == kind::few_in_a_row)
      at(i, (i * 7 + 3) % n) += T(2);  // a permutation of the rows if 7 does not divide n, and small numbers
    if (is == kind::few_in_a_row) at(i, (i + n / 2) % n) += drawn<T>(random) * T(0.25) + (n % 7 == 0 ? T(4) : T(0));
    if (is == kind::tiny_diagonal) at(i, i) = at(i, i) * T(1e-6);
    if (is == kind::first_columns_below)
      for (int64_t j = 0; i < n / 2 && j < n / 2; ++j) at(i, j) = T(0);  // all pivots of the first half are in the second half
  }
  return a;
}
/// Returns the largest difference between a x and b, divided by the size of a x. Returns infinity for NaN.
template <class T>
double residual(int64_t n, int64_t k, const std::vector<T>& a, const std::vector<T>& b, const T* x) {
  using exact = std::conditional_t<std::is_floating_point_v<T>, double, std::complex<double>>;
  double worst = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t c = 0; c < k; ++c) {
      exact sum = -exact(b[static_cast<std::size_t>(i * k + c)]);
      double size = 1;
      for (int64_t j = 0; j < n; ++j) {
        const exact term = exact(a[static_cast<std::size_t>(i * n + j)]) * exact(x[j * k + c]);
        sum += term;
        size += std::abs(term);
      }
      const double wrong = std::abs(sum) / size;
      if (!(wrong < INFINITY)) return INFINITY;
      worst = std::max(worst, wrong);
    }
  return worst;
}

struct setting {
  std::array<int, 2> mesh{1, 1};
  matrix_grid grid;
  kind is = kind::random;
  int64_t n = 1, k = 1;
  std::vector<std::string> a_split{"", ""}, b_split{"", ""};

  [[nodiscard]] std::string text() const {
    std::string t = "mesh " + std::to_string(mesh[0]) + " x " + std::to_string(mesh[1]) + ", rows " +
                    std::string(grid.rows.view()) + ", columns " + std::string(grid.cols.view()) + ", block " +
                    std::to_string(grid.block) + ", strips " + std::to_string(grid.strips) + ", kind " +
                    std::to_string(static_cast<int>(is)) + ", n " + std::to_string(n) + ", k " + std::to_string(k);
    for (const auto* split : {&a_split, &b_split})
      for (const auto& s : *split) t += " [" + s + "]";
    return t;
  }
};
template <class T>
std::string mistake(const setting& s, reference::random_numbers& random) {
  const auto a = matrix_of<T>(s.is, s.n, random);
  std::vector<T> b(static_cast<std::size_t>(s.n * s.k));
  for (auto& e : b) e = drawn<T>(random);
  const auto p =
      dynamic::compile([&](value x, value y) { return solve(x, y, s.grid); }, dynamic::mesh({{"x", s.mesh[0]}, {"y", s.mesh[1]}}),
                       dynamic::input<T>({s.n, s.n}, s.a_split), dynamic::input<T>({s.n, s.k}, s.b_split));
  const auto r = p.run(simulated{}, pointers(a, b));
  if (r[0].shape != std::vector<int64_t>{s.n, s.k}) return "the shape";
  const double eps = sizeof(decltype(std::abs(T{}))) == 8 ? 1e-13 : 1e-4;
  const double wrong = residual(s.n, s.k, a, b, r[0].template data<T>());
  return wrong <= eps ? std::string() : "the equations are missed by " + std::to_string(wrong);
}
template <class T>
std::string mistake_of_positive(const setting& s, reference::random_numbers& random) {
  auto a = matrix_of<T>(kind::random, s.n, random);
  for (int64_t i = 0; i < s.n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      T& e = a[static_cast<std::size_t>(i * s.n + j)];
      if (i == j) e = T(static_cast<double>(2 * s.n));
      a[static_cast<std::size_t>(j * s.n + i)] = std::conj(e);
    }
  std::vector<T> b(static_cast<std::size_t>(s.n * s.k));
  for (auto& e : b) e = drawn<T>(random);
  auto lower = a;  // elements above the diagonal are not read
  for (int64_t i = 0; i < s.n; ++i)
    for (int64_t j = i + 1; j < s.n; ++j) lower[static_cast<std::size_t>(i * s.n + j)] = T(NAN, 1);
  const auto p = dynamic::compile(
      [&](value x, value y) {
        return std::tuple{cholesky(x, s.grid), solve_positive(x, y, s.grid)};
      },
      dynamic::mesh({{"x", s.mesh[0]}, {"y", s.mesh[1]}}), dynamic::input<T>({s.n, s.n}, s.a_split),
      dynamic::input<T>({s.n, s.k}, s.b_split));
  const auto r = p.run(simulated{}, pointers(lower, b));
  const T* const l = r[0].template data<T>();
  for (int64_t i = 0; i < s.n; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      T sum = -a[static_cast<std::size_t>(i * s.n + j)];
      for (int64_t k = 0; k < s.n; ++k) sum += l[i * s.n + k] * std::conj(l[j * s.n + k]);
      if (!(std::abs(sum) < 1e-12) || (j > i && l[i * s.n + j] != T(0))) return "l l^H";
    }
  return residual(s.n, s.k, a, b, r[1].template data<T>()) <= 1e-13 ? std::string() : "solve_positive";
}

}  // namespace over_grid

TEST_CASE("block_cyclic: general and complex systems on random grids, extents, blocks and shardings") {
  using namespace over_grid;
  reference::random_numbers random(5);
  const std::vector<std::array<int, 2>> meshes = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {3, 1}, {2, 3}, {4, 2}, {1, 5}, {2, 4}};
  const std::vector<std::array<const char*, 2>> axes = {{"x", "y"},  {"y", "x"},  {"x", ""}, {"", "y"},
                                                        {"x,y", ""}, {"", "y,x"}, {"", ""}};
  for (int round = 0; round < 50; ++round) {
    setting s;
    s.mesh = random.one_of(meshes);
    const auto& names = random.chance(50) ? axes[0] : random.one_of(axes);
    s.grid = {.rows = dim_spec(std::string_view(names[0])),
              .cols = dim_spec(std::string_view(names[1])),
              .block = random.one_of(std::vector<int64_t>{1, 2, 3, 5, 64}),
              .strips = random.between(1, 5)};
    s.is = static_cast<kind>(random.between(0, static_cast<int>(kind::count) - 1));
    s.n = random.chance(30) ? random.between(40, 70) : random.between(1, 24);
    s.k = random.between(1, 4);
    s.a_split = random.one_of(std::vector<std::vector<std::string>>{{"", ""}, {"x", "y"}, {"y", ""}, {"", "x"}, {"x,y", ""}});
    s.b_split = random.one_of(std::vector<std::vector<std::string>>{{"", ""}, {"x", ""}, {"", "y"}, {"x", "y"}});
    std::string wrong;
    try {
      if (random.chance(25)) wrong = mistake_of_positive<std::complex<double>>(s, random);
      else if (random.chance(60)) wrong = mistake<double>(s, random);
      else wrong = random.chance(50) ? mistake<float>(s, random) : mistake<std::complex<double>>(s, random);
    } catch (const error& e) {
      wrong = e.what();
    }
    if (!wrong.empty()) FAIL_CHECK(s.text() << ": " << wrong);
  }
}

TEST_CASE("block_cyclic: what elimination sends and holds falls with the devices") {
  using namespace over_grid;
  constexpr int64_t n = 4096, block = 64, strips = 8, element = sizeof(double);
  for (const auto& [rows, columns] : std::vector<std::array<int64_t, 2>>{{2, 2}, {2, 4}, {4, 4}}) {
    const int64_t devices = rows * columns;
    const auto p = dynamic::compile(
        [&](value a, value b) { return solve(a, b, {.rows = "x", .cols = "y", .block = block, .strips = strips}); },
        dynamic::mesh({{"x", static_cast<int>(rows)}, {"y", static_cast<int>(columns)}}),
        dynamic::input<double>({n, n}, {"x", "y"}), dynamic::input<double>({n, 1}));
    const double all = static_cast<double>(n * n * element), share = all / static_cast<double>(devices);
    // The bytes that panels send along rows, and their rows of u along columns, if they are broadcast.
    const double by_broadcasts = 0.5 * share * static_cast<double>(columns - 1 + rows - 1);
    CAPTURE(devices);
    CHECK(static_cast<double>(p.traffic().bytes) <= 4.6 * by_broadcasts);
    // The matrix and its remainder, the rows of a strip on each row of the grid, and the squares.
    CHECK(static_cast<double>(p.peak_bytes_per_device()) <=
          3.2 * share + all / static_cast<double>(strips * columns) + 1.1 * all / strips);
    CHECK(static_cast<double>(p.flops_per_device()) * static_cast<double>(devices) <=
          1.3 * 2 / 3 * static_cast<double>(n) * n * n);
  }
}

TEST_CASE("block_cyclic: gradients of solve are those of differences") {
  using namespace over_grid;
  constexpr int64_t n = 6;
  reference::random_numbers random(3);
  const auto a = matrix_of<double>(kind::first_columns_below, n, random);
  const std::vector<double> b{1, -2, 3, 0.5, 1, 2};
  for (const int64_t block : {1, 3}) {
    CAPTURE(block);
    const auto loss = [&](value x, value y) {
      return sum(y * solve(x, y * y, {.rows = "x", .cols = "y", .block = block, .strips = 2}));
    };
    const auto f = dynamic::compile(loss, dynamic::mesh({{"x", 1}, {"y", 1}}), dynamic::input<double>({n, n}),
                                    dynamic::input<double>({n, 1}));
    const auto g = dynamic::compile(
        [&](value x, value y) {
          return grad(loss(x, y), std::tuple{x, y});
        },
        dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({n, n}, {"x", "y"}), dynamic::input<double>({n, 1}));
    const auto found = g.run(simulated{}, pointers(a, b));
    const auto slope = [&](std::size_t operand, std::size_t i) {
      const auto at = [&](double shift) {
        auto moved_a = a, moved_b = b;
        (operand == 0 ? moved_a : moved_b)[i] += shift;
        return f.run(simulated{}, pointers(moved_a, moved_b))[0].data<double>()[0];
      };
      return (8 * (at(1e-4) - at(-1e-4)) - (at(2e-4) - at(-2e-4))) / 12e-4;
    };
    for (std::size_t i = 0; i < n; ++i) CHECK(found[1].data<double>()[i] == doctest::Approx(slope(1, i)).epsilon(1e-6));
    for (std::size_t i = 0; i < n * n; ++i) CHECK(found[0].data<double>()[i] == doctest::Approx(slope(0, i)).epsilon(1e-6));
  }
}

namespace {

using namespace gspmd;

constexpr auto general = [](auto a, auto b) { return solve(a, b, {.rows = "x", .cols = "y", .block = 4, .strips = 2}); };
using general_on_grid = compile<general, mesh<axis<"x", 2>, axis<"y", 2>>, input<double, shape<30, 30>, split<"x", "y">>,
                                input<double, shape<30, 2>>>;

}  // namespace

TEST_CASE("block_cyclic: solve compiled on threads; a singular matrix gives no numbers; of no rows and no columns") {
  using namespace over_grid;
  reference::random_numbers random(9);
  const auto a = matrix_of<double>(kind::tiny_diagonal, 30, random);
  std::vector<double> b(60);
  for (auto& e : b) e = drawn<double>(random);
  array<double> matrix({30, 30}), sides({30, 2});
  std::copy(a.begin(), a.end(), matrix.begin());
  std::copy(b.begin(), b.end(), sides.begin());
  const array<double> x = run<general_on_grid>(threads{}, matrix, sides);
  CHECK(residual(30, 2, a, b, x.data()) < 1e-13);

  // Equal rows, and zeros: for any order of elimination the last pivot is 0, and x is NaN.
  const auto p = dynamic::compile(general, dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({30, 30}, {"x", "y"}),
                                  dynamic::input<double>({30, 2}));
  std::vector<double> ones(900, 1.0), zeros(900, 0.0);
  for (const auto* singular : {&ones, &zeros}) {
    const auto r = p.run(simulated{}, pointers(*singular, b));
    int numbers = 0;
    for (std::size_t i = 0; i < 60; ++i) numbers += std::isfinite(r[0].data<double>()[i]) ? 1 : 0;
    CHECK(numbers < 60);
  }
  // A row or a column of zeros: if the last rows have no pivot, no finished row replaces the pivot.
  for (const std::int64_t n : {2, 7, 12}) {
    const auto q =
        dynamic::compile([](value m, value s) { return solve(m, s, {.rows = "x", .cols = "y", .block = 2, .strips = 2}); },
                         dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({n, n}), dynamic::input<double>({n, 1}));
    for (std::int64_t line = 0; line < 2 * n; ++line) {
      auto c = matrix_of<double>(kind::random, n, random);
      for (std::int64_t i = 0; i < n; ++i) c[static_cast<std::size_t>(line < n ? line * n + i : i * n + line - n)] = 0;
      const auto r = q.run(simulated{}, pointers(c, b));
      const double* const y = r[0].data<double>();
      CHECK(!std::all_of(y, y + n, [](double e) { return std::isfinite(e); }));
    }
  }
  for (const auto& [n, k] : std::vector<std::array<std::int64_t, 2>>{{0, 3}, {4, 0}}) {
    const auto q = dynamic::compile(general, dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({n, n}),
                                    dynamic::input<double>({n, k}));
    const auto r = q.run(simulated{}, pointers(a, b));
    CHECK((r[0].shape == std::vector<std::int64_t>{n, k} && r[0].bytes.empty()));
  }
}

TEST_CASE("block_cyclic: mistakes of solve have words") {
  const auto refusal = [](auto f, auto... x) {
    return caught::refusal([&] { static_cast<void>(dynamic::compile(f, dynamic::mesh({{"x", 2}, {"y", 2}}), x...)); });
  };
  const auto says = [](const std::string& got, const std::string& words) {
    INFO(got);
    CHECK((got.rfind("solve at ", 0) == 0 && got.find(words) != std::string::npos));
  };
  const auto f64 = [](std::vector<std::int64_t> s) { return dynamic::input<double>(s); };
  const auto f = [](value a, value b) { return solve(a, b, {.rows = "x", .cols = "y", .block = 2}); };
  says(refusal([](value a, value b) { return solve(a, b, {.rows = "z"}); }, f64({8, 8}), f64({8, 1})),
       "`z` is not an axis of the mesh; its axes are x,y");
  says(refusal([](value a, value b) { return solve(a, b, {.rows = "x", .strips = -1}); }, f64({8, 8}), f64({8, 1})),
       "distributes blocks of 64 in -1 strips; there is at least one of each, or 0 strips for the default");
  says(refusal(f, f64({3, 8, 8}), f64({3, 8, 1})), "is given [3,8,8]; over a grid it takes one matrix, of two dims");
  says(refusal(f, f64({8, 6}), f64({8, 1})), "the last two dims, a matrix, are equal");
  says(refusal(f, dynamic::input<int>({8, 8}), dynamic::input<int>({8, 1})), "it takes float, double and complex numbers");
  says(refusal(f, f64({8, 8}), f64({8})), "is given matrices f64[8,8] and right-hand sides f64[8]");
}
