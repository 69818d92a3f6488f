// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// alone: yes
// A matrix over a grid of devices: distributed like ScaLAPACK, factored like a hand-written loop, and never gathered.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/linalg/block_cyclic.hpp>
#include <gspmd/transform/vmap.hpp>

#include "support/error_of.hpp"
#include "support/random_program.hpp"

namespace matrix_on_grid {

using namespace gspmd;
using std::int64_t;

/// The type that hand-written code uses to compute each element.
template <class T>
struct exact_of {
  using type = long double;
};
template <class T>
struct exact_of<std::complex<T>> {
  using type = std::complex<long double>;
};
template <class T>
using exact = typename exact_of<T>::type;

template <class T>
T conjugate(const T& x) {
  if constexpr (std::is_floating_point_v<T>) return x;
  else return std::conj(x);
}
template <class T>
T random_element(reference::random_numbers& random) {
  const auto part = [&] { return static_cast<double>(random.between(-1000, 1000)) / 1000; };
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(part());
  else {
    using real = typename T::value_type;
    const auto re = static_cast<real>(part()), im = static_cast<real>(part());
    return {re, im};
  }
}

/// Returns a matrix with a Hermitian, positive definite lower triangle. The elements above the diagonal are its mirror
/// image.
template <class T>
std::vector<T> matrix_of(int64_t n, reference::random_numbers& random) {
  std::vector<T> a(static_cast<std::size_t>(n * n));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      const T x = random_element<T>(random);
      a[static_cast<std::size_t>(j * n + i)] = conjugate(x);
      a[static_cast<std::size_t>(i * n + j)] = i == j ? T(std::real(x)) + T(static_cast<float>(2 * n + 1)) : x;
    }
  return a;
}
/// The same with a number above the diagonal, where nothing is read.
template <class T>
std::vector<T> lower_of(int64_t n, std::vector<T> a, T above) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n; ++j) a[static_cast<std::size_t>(i * n + j)] = above;
  return a;
}
/// Cholesky and Banachiewicz, row by row.
template <class T>
std::vector<exact<T>> factor(int64_t n, const std::vector<T>& a) {
  std::vector<exact<T>> l(static_cast<std::size_t>(n * n));
  const auto at = [&](int64_t i, int64_t j) -> exact<T>& { return l[static_cast<std::size_t>(i * n + j)]; };
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      exact<T> sum(a[static_cast<std::size_t>(i * n + j)]);
      for (int64_t k = 0; k < j; ++k) sum -= at(i, k) * conjugate(at(j, k));
      at(i, j) = i == j ? std::sqrt(sum) : sum / at(j, j);
    }
  return l;
}
std::vector<const void*> pointers(const auto&... x) { return {static_cast<const void*>(x.data())...}; }

struct setting {
  std::array<int, 2> mesh;
  matrix_grid grid;
  int64_t n, k;
  std::vector<std::string> a_split, b_split;

  [[nodiscard]] std::string text() const {
    std::string t = "mesh " + std::to_string(mesh[0]) + " x " + std::to_string(mesh[1]) + ", rows " +
                    std::string(grid.rows.view()) + ", columns " + std::string(grid.cols.view()) + ", block " +
                    std::to_string(grid.block) + ", strips " + std::to_string(grid.strips) + ", n " + std::to_string(n) + ", k " +
                    std::to_string(k);
    for (const auto* split : {&a_split, &b_split})
      for (const auto& s : *split) t += " [" + s + "]";
    return t;
  }
};
template <class T>
std::string mistake(const setting& s, reference::random_numbers& random) {
  using part = decltype(std::real(T{}));
  const auto a = matrix_of<T>(s.n, random);
  std::vector<T> b(static_cast<std::size_t>(s.n * s.k));
  for (auto& e : b) e = random_element<T>(random);
  const auto p = dynamic::compile(
      [&](value x, value y) {
        return std::tuple{cholesky(x, s.grid), solve_positive(x, y, s.grid)};
      },
      dynamic::mesh({{"x", s.mesh[0]}, {"y", s.mesh[1]}}), dynamic::input<T>({s.n, s.n}, s.a_split),
      dynamic::input<T>({s.n, s.k}, s.b_split));
  const auto lower = lower_of(s.n, a, T(std::numeric_limits<part>::quiet_NaN()));
  const auto r = random.chance(30) ? p.run(threads{}, pointers(lower, b)) : p.run(simulated{}, pointers(lower, b));
  const auto wanted = factor(s.n, a);
  const double eps = sizeof(part) == 8 ? 1e-13 : 1e-5;
  for (std::size_t e = 0; e < wanted.size(); ++e) {
    const auto l = exact<T>(r[0].template data<T>()[e]);
    if (!(std::abs(l - wanted[e]) <= eps * (1 + std::abs(wanted[e]))) || (wanted[e] == exact<T>() && l != exact<T>()))
      return "element " + std::to_string(e) + " of l is " + std::to_string(std::real(l)) + " for " +
             std::to_string(std::real(wanted[e]));
  }
  for (int64_t i = 0; i < s.n; ++i)
    for (int64_t c = 0; c < s.k; ++c) {
      exact<T> sum(-b[static_cast<std::size_t>(i * s.k + c)]);
      for (int64_t j = 0; j < s.n; ++j)
        sum += exact<T>(a[static_cast<std::size_t>(i * s.n + j)]) * exact<T>(r[1].template data<T>()[j * s.k + c]);
      if (!(std::abs(sum) <= eps * static_cast<double>(s.n + 1)))
        return "the equations are missed by " + std::to_string(std::abs(sum));
    }
  return {};
}

}  // namespace matrix_on_grid

TEST_CASE("block_cyclic: random grids, extents, blocks and shardings, beside a loop by hand") {
  using namespace matrix_on_grid;
  reference::random_numbers random(21);
  const std::vector<std::array<int, 2>> meshes = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {3, 1}, {3, 2}, {2, 4}, {4, 2}, {1, 5}, {4, 4}};
  const std::vector<std::array<const char*, 2>> axes = {{"x", "y"},  {"y", "x"},  {"x", ""}, {"", "y"},
                                                        {"x,y", ""}, {"", "y,x"}, {"", ""}};
  for (int round = 0; round < 60; ++round) {
    setting s;
    s.mesh = random.one_of(meshes);
    const auto& names = random.one_of(axes);
    s.grid = {.rows = dim_spec(std::string_view(names[0])),
              .cols = dim_spec(std::string_view(names[1])),
              .block = random.one_of(std::vector<int64_t>{1, 2, 3, 5, 64}),
              .strips = random.between(0, 9)};
    s.n = random.chance(20) ? random.between(40, 70) : random.between(1, 24);
    s.k = random.between(1, 4);
    s.a_split = random.one_of(std::vector<std::vector<std::string>>{{"", ""}, {"x", "y"}, {"y", ""}, {"", "x"}, {"x,y", ""}});
    s.b_split = random.one_of(std::vector<std::vector<std::string>>{{"", ""}, {"x", ""}, {"", "y"}, {"x", "y"}});
    std::string wrong;
    try {
      const auto kind = random.between(0, 3);
      wrong = kind == 0   ? mistake<float>(s, random)
              : kind == 1 ? mistake<std::complex<double>>(s, random)
              : kind == 2 ? mistake<std::complex<float>>(s, random)
                          : mistake<double>(s, random);
    } catch (const error& e) {
      wrong = e.what();
    }
    if (!wrong.empty()) FAIL_CHECK(s.text() << ": " << wrong);
  }
}

TEST_CASE("block_cyclic: where elements lie is ScaLAPACK's rule, and collecting gives the matrix back") {
  using namespace matrix_on_grid;
  for (const auto& [rows, columns, block, m, n] : std::vector<std::array<int64_t, 5>>{
           {1, 1, 2, 4, 6}, {2, 2, 3, 12, 18}, {2, 3, 2, 20, 12}, {3, 1, 1, 6, 5}, {4, 2, 2, 24, 8}, {2, 2, 2, 0, 4}}) {
    const matrix_grid grid{.rows = "x", .cols = "y", .block = block};
    const auto p = dynamic::compile(
        [&](value a) {
          const value t = distribute_matrix(a, grid);
          return std::tuple{t, collect_matrix(t, grid)};
        },
        dynamic::mesh({{"x", static_cast<int>(rows)}, {"y", static_cast<int>(columns)}}),
        dynamic::input<double>({m, n}, {"x", "y"}));
    std::vector<double> a(static_cast<std::size_t>(m * n));
    std::iota(a.begin(), a.end(), 1.0);
    const auto r = p.run(simulated{}, pointers(a));
    CHECK(r[0].shape == std::vector<int64_t>{rows, columns, m / rows, n / columns});
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        // Blackford et al. 1997, 4.3.1: the process, and the position in its matrix.
        const int64_t part = i / block % rows * columns + j / block % columns;
        const int64_t row = i / (block * rows) * block + i % block, column = j / (block * columns) * block + j % block;
        CHECK(r[0].data<double>()[(part * (m / rows) + row) * (n / columns) + column] == a[static_cast<std::size_t>(i * n + j)]);
      }
    CHECK(std::equal(a.begin(), a.end(), r[1].data<double>()));
  }
}

TEST_CASE("block_cyclic: what is sent and held falls with the devices, and flops are a little more than a third of n^3") {
  using namespace matrix_on_grid;
  constexpr int64_t n = 4096, block = 64, element = sizeof(double);
  for (const auto& [rows, columns] : std::vector<std::array<int64_t, 2>>{{2, 2}, {4, 4}, {2, 4}, {8, 8}}) {
    const int64_t devices = rows * columns;
    const auto p = dynamic::compile([&](value t) { return block_cyclic_cholesky(t, {.rows = "x", .cols = "y", .block = block}); },
                                    dynamic::mesh({{"x", static_cast<int>(rows)}, {"y", static_cast<int>(columns)}}),
                                    dynamic::input<double>({rows, columns, n / rows, n / columns}, {"x", "y", "", ""}));
    // For each block column, broadcasts of panels send the part below it along the rows and columns of the grid. Here
    // squares of strips are gathered too, and rows are distributed and collected.
    const auto elements = static_cast<double>(n * n), share = elements / static_cast<double>(devices);
    const double square = elements / 64;  // there are 8 strips
    const double by_broadcasts = 0.5 * share * static_cast<double>(columns + rows - 2);
    const double besides = 8 * square + share * static_cast<double>(columns - 1) / static_cast<double>(columns);
    CAPTURE(devices);
    CHECK(static_cast<double>(p.traffic().bytes) <= element * (by_broadcasts + besides));
    CHECK(p.traffic().messages <= 18 * devices);  // a loop over block columns has 64 times two sums
    // The matrix, l, half of l again, and squares.
    CHECK(static_cast<double>(p.peak_bytes_per_device()) <= element * (3.1 * share + 3.1 * square));
    CHECK(static_cast<double>(p.flops_per_device()) <= (1.25 + static_cast<double>(devices) / 64) / 3 * n * share);
  }
}

TEST_CASE("block_cyclic: gradients are those of differences") {
  using namespace matrix_on_grid;
  constexpr int64_t n = 6;
  reference::random_numbers random(2);
  auto a = matrix_of<double>(n, random);
  const std::vector<double> b{1, -2, 3, 0.5, 1, 2};
  for (const int64_t block : {1, 3}) {
    CAPTURE(block);
    const auto loss = [&](value x, value y) {
      return sum(y * solve_positive(x, y * y, {.rows = "x", .cols = "y", .block = block}));
    };
    const auto f = dynamic::compile(loss, dynamic::mesh({{"x", 1}, {"y", 1}}), dynamic::input<double>({n, n}),
                                    dynamic::input<double>({n, 1}));
    const auto g = dynamic::compile(
        [&](value x, value y) {
          return grad(loss(x, y), std::tuple{x, y});
        },
        dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({n, n}, {"x", "y"}), dynamic::input<double>({n, 1}));
    const auto found = g.run(simulated{}, pointers(a, b));
    const auto slope = [&](std::size_t operand, std::vector<std::size_t> places) {
      const auto at = [&](double shift) {
        auto moved_a = a, moved_b = b;
        for (const auto i : places) (operand == 0 ? moved_a : moved_b)[i] += shift;
        return f.run(simulated{}, pointers(moved_a, moved_b))[0].data<double>()[0];
      };
      return (8 * (at(1e-3) - at(-1e-3)) - (at(2e-3) - at(-2e-3))) / 12e-3;
    };
    for (std::size_t i = 0; i < n; ++i) CHECK(found[1].data<double>()[i] == doctest::Approx(slope(1, {i})).epsilon(1e-8));
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j <= i; ++j) {
        // Only the lower triangle is read.
        CHECK(found[0].data<double>()[i * n + j] == doctest::Approx(slope(0, {i * n + j})).epsilon(1e-8));
        if (j < i) CHECK(found[0].data<double>()[j * n + i] == 0);
      }
  }
}

TEST_CASE("block_cyclic: what is above the diagonal is not read, be it zeros or NaNs") {
  using namespace matrix_on_grid;
  constexpr int64_t n = 16;
  reference::random_numbers random(5);
  const auto symmetric = matrix_of<double>(n, random);
  const auto wanted = factor(n, symmetric);
  for (const int64_t block : {1, 2, 4, 8})
    for (const double above : {0.0, std::numeric_limits<double>::quiet_NaN()}) {
      CAPTURE(block);
      CAPTURE(above);
      const auto a = lower_of(n, symmetric, above);
      const auto p = dynamic::compile([&](value m) { return cholesky(m, {.rows = "x", .cols = "y", .block = block}); },
                                      dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({n, n}, {"x", "y"}));
      const auto r = p.run(simulated{}, pointers(a));
      int wrong = 0;
      for (std::size_t e = 0; e < wanted.size(); ++e) wrong += std::fabs(r[0].data<double>()[e] - wanted[e]) < 1e-13 ? 0 : 1;
      CHECK(wrong == 0);
    }
}

TEST_CASE("block_cyclic: of no rows") {
  using namespace matrix_on_grid;
  const matrix_grid grid{.rows = "x", .cols = "y", .block = 2};
  const auto p = dynamic::compile(
      [&](value a, value b) {
        return std::tuple{solve_positive(a, b, grid),
                          block_cyclic_cholesky_solve(block_cyclic_cholesky(distribute_matrix(a, grid), grid), b, grid)};
      },
      dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({0, 0}, {"x", "y"}), dynamic::input<double>({0, 3}));
  const double none = 0;
  for (const auto& x : p.run(simulated{}, {static_cast<const void*>(&none), static_cast<const void*>(&none)}))
    CHECK((x.shape == std::vector<std::int64_t>{0, 3} && x.bytes.empty()));
}

namespace {

using namespace gspmd;

constexpr auto solver = [](auto a, auto b) { return solve_positive(a, b, {.rows = "x", .cols = "y", .block = 4, .strips = 2}); };
using on_grid =
    compile<solver, mesh<axis<"x", 2>, axis<"y", 2>>, input<double, shape<32, 32>, split<"x", "y">>, input<double, shape<32, 2>>>;

}  // namespace

TEST_CASE("block_cyclic: compiled on threads; a matrix that is not positive definite gives NaNs from there on") {
  using namespace matrix_on_grid;
  array<double> a({32, 32}), b({32, 2});
  for (std::size_t i = 0; i < 32; ++i)
    for (std::size_t j = 0; j < 32; ++j) a.data()[i * 32 + j] = (i == j ? 33 : 0) + std::cos(3.0 * static_cast<double>(i + j));
  for (std::size_t i = 0; i < 64; ++i) b.data()[i] = std::sin(static_cast<double>(i));
  const array<double> x = run<on_grid>(threads{}, a, b);
  for (std::size_t i = 0; i < 32; ++i)
    for (std::size_t c = 0; c < 2; ++c) {
      double sum = -b.data()[i * 2 + c];
      for (std::size_t j = 0; j < 32; ++j) sum += a.data()[i * 32 + j] * x.data()[j * 2 + c];
      CHECK(std::fabs(sum) < 1e-12);
    }
  constexpr int64_t n = 12;
  reference::random_numbers random(3);
  auto bad = matrix_of<double>(n, random);
  bad[5 * n + 5] = -1;
  const auto p = dynamic::compile([](value m) { return cholesky(m, {.rows = "x", .cols = "y", .block = 2}); },
                                  dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({n, n}, {"x", "y"}));
  const auto r = p.run(simulated{}, pointers(bad));
  const auto wanted = factor(n, bad);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      const double l = r[0].data<double>()[i * n + j];
      if (j < 4) CHECK(l == doctest::Approx(static_cast<double>(wanted[static_cast<std::size_t>(i * n + j)])));
      else CHECK(std::isnan(l));
    }
}

TEST_CASE("block_cyclic: no number below the square of a strip stays in its row until that is on the diagonal") {
  using namespace matrix_on_grid;
  constexpr int64_t n = 24, strip = 12, row = 20, column = 5;
  reference::random_numbers random(6);
  const auto a = matrix_of<double>(n, random);
  const auto wanted = factor(n, a);
  const auto p = dynamic::compile([](value m) { return cholesky(m, {.rows = "x", .cols = "y", .block = 2, .strips = 2}); },
                                  dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({n, n}, {"x", "y"}));
  for (const double none : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    auto bad = a;
    bad[row * n + column] = none;
    const auto r = p.run(simulated{}, pointers(bad));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) {
        const double l = r[0].data<double>()[i * n + j];
        if (j >= strip) CHECK(std::isnan(l));
        else if (i == row && j >= column) CHECK(!std::isfinite(l));
        else CHECK(l == doctest::Approx(static_cast<double>(wanted[static_cast<std::size_t>(i * n + j)])));
      }
  }
}

TEST_CASE("block_cyclic: several matrices by vmap") {
  using namespace matrix_on_grid;
  constexpr int64_t n = 7;
  reference::random_numbers random(4);
  auto a = matrix_of<double>(n, random);
  const auto second = matrix_of<double>(n, random);
  const auto first_l = factor(n, a), second_l = factor(n, second);
  a.insert(a.end(), second.begin(), second.end());
  const auto p = dynamic::compile(
      [](value both) { return vmap([](value m) { return cholesky(m, {.rows = "x", .cols = "y", .block = 2}); })(both); },
      dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({2, n, n}, {"", "x", "y"}));
  const auto r = p.run(simulated{}, pointers(a));
  for (std::size_t i = 0; i < n * n; ++i) {
    CHECK(r[0].data<double>()[i] == doctest::Approx(static_cast<double>(first_l[i])));
    CHECK(r[0].data<double>()[n * n + i] == doctest::Approx(static_cast<double>(second_l[i])));
  }
}

TEST_CASE("block_cyclic: mistakes have words") {
  const auto refusal = [](auto f, auto... x) {
    return caught::refusal([&] { static_cast<void>(dynamic::compile(f, dynamic::mesh({{"x", 2}, {"y", 2}}), x...)); });
  };
  const auto says = [](const std::string& got, const std::string& op, const std::string& words) {
    INFO(got);
    CHECK((got.rfind(op + " at ", 0) == 0 && got.find(words) != std::string::npos));
  };
  const auto f64 = [](std::vector<std::int64_t> s) { return dynamic::input<double>(s); };
  const matrix_grid grid{.rows = "x", .cols = "y", .block = 2};
  says(refusal([](value a) { return cholesky(a, {.rows = "z"}); }, f64({8, 8})), "cholesky",
       "`z` is not an axis of the mesh; its axes are x,y");
  says(refusal([](value a) { return cholesky(a, {.rows = "x", .cols = "x"}); }, f64({8, 8})), "cholesky",
       "axis `x` is used twice");
  says(refusal([](value a) { return distribute_matrix(a, {.rows = "x", .block = 0}); }, f64({8, 8})), "distribute_matrix",
       "distributes blocks of 0 in 0 strips; there is at least one of each, or 0 strips for the default");
  says(refusal([&](value a) { return distribute_matrix(a, grid); }, f64({8, 6})), "distribute_matrix",
       "is given [8,6]; it takes a matrix whose extents are multiples of 2 x 2 blocks of 2: pad it, or call cholesky, solve or "
       "solve_positive, which take whole matrices");
  says(refusal([&](value a) { return collect_matrix(a, grid); }, f64({8, 8})), "collect_matrix",
       "is given [8,8]; it takes the blocks that distribute_matrix makes of a matrix, [2,2,p,q], p and q multiples of 2");
  says(refusal([&](value a) { return block_cyclic_cholesky(a, grid); }, f64({2, 2, 4, 2})), "block_cyclic_cholesky",
       "is given [2,2,4,2]; it takes the blocks that distribute_matrix makes of a square matrix, [2,2,p,q]");
  says(refusal([&](value a, value b) { return block_cyclic_cholesky_solve(a, b, grid); }, f64({2, 2, 4, 4}), f64({4, 1})),
       "block_cyclic_cholesky_solve", "is given right-hand sides f64[4,1]; it takes f64[8,k]");
  says(refusal([&](value a) { return cholesky(a, grid); }, f64({3, 8, 8})), "cholesky",
       "is given [3,8,8]; over a grid it takes one matrix, of two dims");
  says(refusal([&](value a) { return cholesky(a, grid); }, f64({8, 6})), "cholesky", "the last two dims, a matrix, are equal");
  says(refusal([&](value a) { return cholesky(a, grid); }, dynamic::input<int>({8, 8})), "cholesky",
       "it takes float, double and complex numbers");
  says(refusal([&](value a, value b) { return solve_positive(a, b, grid); }, f64({8, 8}), f64({8})), "solve_positive",
       "is given matrices f64[8,8] and right-hand sides f64[8]");
}
