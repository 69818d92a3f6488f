// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Factors and solutions satisfy their equations, gradients equal finite differences, and every sharding gives the
// results of a single device.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/linalg/solve.hpp>
#include <gspmd/transform/vmap.hpp>

#include "support/error_of.hpp"
#include "support/random_program.hpp"

namespace linear_algebra {

using namespace gspmd;
using std::int64_t;

enum class what : int { cholesky, triangular, solve, positive, count };

struct setting {
  what is = what::solve;
  std::vector<int64_t> batch;
  int64_t n = 1, k = 1;
  bool has_columns = true;  // of b
  triangular how;
  std::vector<std::string> a_split, b_split;

  [[nodiscard]] std::vector<int64_t> a_shape() const {
    auto s = batch;
    s.push_back(n);
    s.push_back(n);
    return s;
  }
  [[nodiscard]] std::vector<int64_t> b_shape() const {
    auto s = batch;
    s.push_back(n);
    if (has_columns) s.push_back(k);
    return s;
  }
  [[nodiscard]] int64_t matrices() const {
    int64_t all = 1;
    for (const auto e : batch) all *= e;
    return all;
  }
  [[nodiscard]] value call(value a, value b) const {
    if (is == what::cholesky) return cholesky(a) + 0.0 * sum(b);
    if (is == what::triangular) return triangular_solve(a, b, how);
    return is == what::solve ? solve(a, b) : solve_positive(a, b);
  }
  [[nodiscard]] std::string text() const {
    std::string t = "what " + std::to_string(static_cast<int>(is)) + ", n " + std::to_string(n) + ", k " + std::to_string(k) +
                    (has_columns ? "" : " without a dim") + (how.lower ? " lower" : " upper") +
                    (how.transposed ? " transposed" : "") + (how.unit_diagonal ? " unit" : "") + ", batch";
    for (const auto e : batch) t += ' ' + std::to_string(e);
    for (const auto* split : {&a_split, &b_split}) {
      t += ", [";
      for (const auto& s : *split) t.append(s.empty() ? "_" : s).append(" ");
      t += ']';
    }
    return t;
  }
};

/// Returns matrices that are far from singular. If required they are positive definite, with different triangles.
template <class T>
std::vector<T> matrices_of(const setting& s, reference::random_numbers& random) {
  std::vector<T> a(static_cast<std::size_t>(s.matrices() * s.n * s.n));
  for (auto& e : a) e = static_cast<T>(random.between(-1000, 1000)) / T(1000);
  for (int64_t m = 0; m < s.matrices(); ++m)
    for (int64_t i = 0; i < s.n; ++i) {
      T& diagonal = a[static_cast<std::size_t>((m * s.n + i) * s.n + i)];
      if (s.is == what::cholesky || s.is == what::positive) diagonal = static_cast<T>(s.n) + 1 + diagonal;
      else if (s.is == what::triangular) diagonal = static_cast<T>(s.n) / 2 + 1 + diagonal;
      else
        std::swap(diagonal, a[static_cast<std::size_t>((m * s.n + (i + 1) % s.n) * s.n + i)]),
            diagonal /= 4;  // pivots are elsewhere
    }
  return a;
}
/// Returns the error of the result in the equations, divided by the size of their terms.
template <class T>
double residual(const setting& s, const T* a, const T* b, const T* y) {
  double worst = 0;
  const auto n = s.n, k = s.has_columns ? s.k : 1;
  const auto note = [&](double left, double right, double size) {
    const double wrong = std::fabs(left - right) / (size + 1);
    if (!(wrong <= worst)) worst = wrong;
  };
  for (int64_t m = 0; m < s.matrices(); ++m, a += n * n, b += n * k, y += s.is == what::cholesky ? n * n : n * k) {
    const auto element = [&](int64_t i, int64_t j) -> double {
      if (s.is == what::positive || s.is == what::cholesky)
        return 0.5 * (static_cast<double>(a[i * n + j]) + static_cast<double>(a[j * n + i]));
      if (s.is == what::solve) return static_cast<double>(a[i * n + j]);
      const auto r = s.how.transposed ? j : i, c = s.how.transposed ? i : j;
      if (r == c) return s.how.unit_diagonal ? 1 : static_cast<double>(a[r * n + c]);
      return (r > c) == s.how.lower ? static_cast<double>(a[r * n + c]) : 0;
    };
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < (s.is == what::cholesky ? n : k); ++j) {
        double sum = 0, size = 0;
        for (int64_t p = 0; p < n; ++p) {
          const double term = s.is == what::cholesky ? static_cast<double>(y[i * n + p]) * static_cast<double>(y[j * n + p])
                                                     : element(i, p) * static_cast<double>(y[p * k + j]);
          sum += term;
          size += std::fabs(term);
        }
        note(sum, s.is == what::cholesky ? element(i, j) : static_cast<double>(b[i * k + j]), size);
        if (s.is == what::cholesky && j > i) note(static_cast<double>(y[i * n + j]), 0, 0);
      }
  }
  return worst;
}

/// The result, and the gradients of a weighted sum of the result with respect to a and b.
template <class T>
dynamic::program program_of(const setting& s, const dynamic::mesh& m, bool split) {
  const auto names = [&](const std::vector<std::string>& n, std::size_t rank) {
    return split ? n : std::vector<std::string>(rank);
  };
  return dynamic::compile(
      [&s](value a, value b) {
        const value y = s.call(a, b);
        const auto shape = y.shape();
        std::vector<int64_t> all(shape.begin(), shape.end());
        value weights = iota<int64_t>(y, all, 0) * int64_t{0};
        for (int d = 0; d < y.rank(); ++d) weights = weights * int64_t{7} + iota<int64_t>(y, all, d);
        const value w = cast<T>(weights % int64_t{5}) - 1.5;
        const auto [by_a, by_b] = grad(sum(w * y), std::tuple{a, b});
        return std::tuple{y, by_a, by_b, sum(w * y)};
      },
      m, dynamic::input<T>(s.a_shape(), names(s.a_split, s.a_shape().size())),
      dynamic::input<T>(s.b_shape(), names(s.b_split, s.b_shape().size())));
}

template <class T>
std::string mistake(const setting& s, const dynamic::mesh& m, reference::random_numbers& random) {
  const auto a = matrices_of<T>(s, random);
  std::vector<T> b(static_cast<std::size_t>(s.matrices() * s.n * (s.has_columns ? s.k : 1)));
  for (auto& e : b) e = static_cast<T>(random.between(-1000, 1000)) / T(1000);
  const auto run = [](const dynamic::program& p, const std::vector<T>& x, const std::vector<T>& y) {
    return p.run(simulated{}, {static_cast<const void*>(x.data()), static_cast<const void*>(y.data())});
  };
  const auto alone = program_of<T>(s, dynamic::mesh({{"x", 1}, {"y", 1}}), false);
  const auto expected = run(alone, a, b), found = run(program_of<T>(s, m, true), a, b);
  const double eps = sizeof(T) == 8 ? 1e-13 : 1e-5;
  if (const double r = residual(s, a.data(), b.data(), found[0].template data<T>()); !(r <= eps * 10))
    return "the equations are missed by " + std::to_string(r);
  for (std::size_t out = 0; out < 4; ++out) {
    const std::size_t count = expected[out].bytes.size() / sizeof(T);
    for (std::size_t e = 0; e < count; ++e) {
      const auto x = static_cast<double>(expected[out].template data<T>()[e]),
                 y = static_cast<double>(found[out].template data<T>()[e]);
      if (!(std::fabs(x - y) <= 2000 * eps * (1 + std::fabs(x))))
        return "output " + std::to_string(out) + ", element " + std::to_string(e) + ": " + std::to_string(y) + " for " +
               std::to_string(x);
    }
  }
  if (sizeof(T) == 4) return {};
  for (int by = 0; by < 2; ++by) {
    auto x = by == 0 ? a : b;
    for (std::size_t at = 0; at < x.size(); at += x.size() / 6 + 1) {
      const auto loss = [&](double shift) {
        auto moved = x;
        moved[at] += static_cast<T>(shift);
        return static_cast<double>((by == 0 ? run(alone, moved, b) : run(alone, a, moved))[3].template data<T>()[0]);
      };
      const double h = 1e-5, slope = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h);
      const auto got = static_cast<double>(found[by == 0 ? 1U : 2U].template data<T>()[at]);
      if (!(std::fabs(slope - got) <= 1e-5 * (1 + std::fabs(slope))))
        return "gradient " + std::to_string(by) + ", element " + std::to_string(at) + " is " + std::to_string(got) +
               " and by differences " + std::to_string(slope);
    }
  }
  return {};
}

}  // namespace linear_algebra

TEST_CASE("linalg: random factors and systems on random meshes, with gradients") {
  using namespace linear_algebra;
  const std::vector<std::array<int64_t, 2>> meshes = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 2}, {1, 5}};
  reference::random_numbers random(11);
  for (int round = 0; round < 120; ++round) {
    setting s;
    s.is = static_cast<what>(random.between(0, static_cast<int>(what::count) - 1));
    for (int d = random.between(0, 2); d > 0; --d) s.batch.push_back(random.between(1, 5));
    s.n = random.chance(15) ? random.between(17, 70) : random.between(1, 9);
    s.k = random.between(1, 6);
    s.has_columns = random.chance(75);
    s.how = {random.chance(50), random.chance(50), random.chance(30)};
    const auto& sizes = random.one_of(meshes);
    const dynamic::mesh m({{"x", sizes[0]}, {"y", sizes[1]}});
    s.a_split.resize(s.batch.size() + 2);
    s.b_split.resize(s.batch.size() + (s.has_columns ? 2 : 1));
    // Splits dims before the last two, and the columns of b.
    for (auto* const split : {&s.a_split, &s.b_split})
      for (const char* axis : {"x", "y"}) {
        const auto free = static_cast<int>(s.batch.size());
        const bool columns = split == &s.b_split && s.has_columns && s.is != what::cholesky;
        const int last = free + (columns ? 0 : -1);
        if (last < 0 || random.chance(30)) continue;
        const int d = random.between(0, last);
        auto& names = d == free ? split->back() : (*split)[static_cast<std::size_t>(d)];
        if (!names.empty()) names += ',';
        names += axis;
      }
    std::string wrong;
    try {
      wrong = random.chance(70) ? mistake<double>(s, m, random) : mistake<float>(s, m, random);
    } catch (const error& e) {
      wrong = e.what();
    }
    if (!wrong.empty()) FAIL_CHECK(s.text() << ", mesh " << sizes[0] << " x " << sizes[1] << ": " << wrong);
  }
}

// ---- traffic and errors ----

namespace {

using namespace gspmd;

constexpr auto systems = [](auto a, auto b) { return std::tuple{solve(a, b), cholesky(a), triangular_solve(a, b)}; };
using many = compile<systems, mesh<axis<"x", 2>, axis<"y", 2>>, input<double, shape<6, 8, 8>, split<"x", _, _>>,
                     input<double, shape<6, 8, 4>, split<"x", _, "y">>>;
static_assert(many::traffic.bytes == 0);  // many matrices: nothing is sent

// Each device has its own columns of right-hand sides. x of one matrix is split like b.
constexpr auto one_system = [](auto a, auto b) { return solve_positive(a, b); };
using columns = compile<one_system, mesh<axis<"x", 4>>, input<float, shape<8, 8>>, input<float, shape<8, 12>, split<_, "x">>>;
static_assert(columns::traffic.bytes == 0);

}  // namespace

TEST_CASE("linalg: compiled programs on threads") {
  array<double> a({6, 8, 8}), b({6, 8, 4});
  unsigned seed = 5;
  for (auto* x : {&a, &b})
    for (auto& e : *x) e = static_cast<double>((seed = seed * 1664525U + 1013904223U) >> 20) / 4096.0 - 0.5;
  for (std::size_t i = 0; i < 6 * 8; ++i) a.data()[i * 8 + i % 8] += 8;
  const auto [x, l, y] = run<many>(threads{}, a, b);
  for (std::size_t m = 0; m < 6; ++m)
    for (std::size_t i = 0; i < 8; ++i)
      for (std::size_t c = 0; c < 4; ++c) {
        double solved = 0, lower = 0;
        for (std::size_t p = 0; p < 8; ++p) solved += a.data()[(m * 8 + i) * 8 + p] * x.data()[(m * 8 + p) * 4 + c];
        for (std::size_t p = 0; p <= i; ++p) lower += a.data()[(m * 8 + i) * 8 + p] * y.data()[(m * 8 + p) * 4 + c];
        CHECK(solved == doctest::Approx(b.data()[(m * 8 + i) * 4 + c]));
        CHECK(lower == doctest::Approx(b.data()[(m * 8 + i) * 4 + c]));
      }
}

TEST_CASE("linalg: a matrix without factors gives NaNs, and leaves the others alone") {
  const auto in = dynamic::input<double>({3, 20, 20});
  const auto p = dynamic::compile([](value a) { return std::tuple{cholesky(a), solve(a, a)}; }, dynamic::mesh({{"x", 1}}), in);
  std::vector<double> a(3 * 20 * 20, 0);
  for (std::size_t m = 0; m < 3; ++m)
    for (std::size_t i = 0; i < 20; ++i) a[(m * 20 + i) * 20 + i] = m == 1 && i == 17 ? 0 : 2;
  const auto r = p.run(simulated{}, {static_cast<const void*>(a.data())});
  for (std::size_t m = 0; m < 3; ++m)
    for (std::size_t i = 0; i < 20; ++i)
      for (std::size_t j = 0; j < 20; ++j) {
        const std::size_t e = (m * 20 + i) * 20 + j;
        const double l = r[0].data<double>()[e], x = r[1].data<double>()[e];
        if (m == 1) CHECK((std::isnan(x) && (j > i ? l == 0 : std::isnan(l))));
        else CHECK((l == (i == j ? std::sqrt(2.0) : 0) && x == (i == j ? 1 : 0)));
      }
}

TEST_CASE("linalg: a Cholesky factor of numbers of which twice as many are infinite") {
  for (const std::size_t n : {3U, 20U}) {  // both kernels
    const auto extent = static_cast<std::int64_t>(n);
    const auto p = dynamic::compile([](value a) { return cholesky(a); }, dynamic::mesh({{"x", 1}}),
                                    dynamic::input<double>({extent, extent}));
    std::vector<double> a(n * n, 0x1p1022);
    for (std::size_t i = 0; i < n; ++i) a[i * n + i] = 0x1.8p1023;
    const auto r = p.run(simulated{}, {static_cast<const void*>(a.data())});
    for (auto& e : a) e *= 0x1p-1022;  // divided by a power of 2 whose root divides l
    const auto wanted = p.run(simulated{}, {static_cast<const void*>(a.data())});
    for (std::size_t e = 0; e < n * n; ++e) CHECK(r[0].data<double>()[e] == wanted[0].data<double>()[e] * 0x1p511);
  }
}

TEST_CASE_TEMPLATE("linalg: of small matrices, which are factored beside each other, each is its own", T, float, double) {
  const dynamic::mesh one({{"x", 1}});
  for (const std::size_t n : {1U, 2U, 7U, 8U, 9U, 15U, 16U, 17U}) {
    constexpr std::size_t count = 37;
    const auto extent = static_cast<std::int64_t>(n);
    const auto p = dynamic::compile([](value a) { return cholesky(a); }, one, dynamic::input<T>({count, extent, extent}));
    std::vector<T> a(count * n * n);
    reference::random_numbers random(static_cast<unsigned>(n));
    const auto is_bad = [](std::size_t m) { return m % 5 == 3; };
    for (std::size_t m = 0; m < count; ++m)
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j) {
          const T off = static_cast<T>(random.between(-1000, 1000)) / T(1000);
          a[(m * n + i) * n + j] = i != j ? off : is_bad(m) && i == m % n ? T(-1) : static_cast<T>(n + 1 + m);
        }
    const auto r = p.run(simulated{}, {static_cast<const void*>(a.data())});
    for (std::size_t m = 0; m < count; ++m) {
      const T *const x = a.data() + m * n * n, *const l = r[0].template data<T>() + m * n * n;
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j) {
          double sum = 0;
          for (std::size_t q = 0; q <= j; ++q) sum += static_cast<double>(l[i * n + q]) * static_cast<double>(l[j * n + q]);
          const double want = (static_cast<double>(x[i * n + j]) + static_cast<double>(x[j * n + i])) / 2;
          const double near = std::is_same_v<T, float> ? 2e-5 : 1e-13;
          if (j > i       ? l[i * n + j] != 0
              : is_bad(m) ? !std::isnan(l[i * n + j])
                          : !(std::fabs(sum - want) <= near * static_cast<double>(n + m)))
            ++wrong;
        }
      CHECK_MESSAGE(wrong == 0, "matrix ", m, " of ", n, " rows");
    }
  }
}

TEST_CASE("linalg: sizes, singular blocks of the recursion, and long right-hand sides") {
  using linear_algebra::setting;
  reference::random_numbers random(4);
  for (const int n : {16, 17, 31, 32, 33, 64, 65, 128, 200})
    for (int is = 0; is < static_cast<int>(linear_algebra::what::count); ++is) {
      setting s;
      s.is = static_cast<linear_algebra::what>(is);
      s.n = n;
      s.k = n == 64 ? 300 : 3;
      s.a_split.resize(2);
      s.b_split.resize(2);
      const auto a = linear_algebra::matrices_of<double>(s, random);
      std::vector<double> b(static_cast<std::size_t>(s.n * s.k));
      for (auto& e : b) e = random.between(-100, 100) / 100.0;
      const auto p = dynamic::compile([&s](value x, value y) { return s.call(x, y); }, dynamic::mesh({{"x", 1}}),
                                      dynamic::input<double>(s.a_shape()), dynamic::input<double>(s.b_shape()));
      const auto r = p.run(simulated{}, {static_cast<const void*>(a.data()), static_cast<const void*>(b.data())});
      CAPTURE(n);
      CAPTURE(is);
      CHECK(linear_algebra::residual(s, a.data(), b.data(), r[0].data<double>()) < 1e-11);
    }
}

TEST_CASE("linalg: with vmap a dim more, of both or of one") {
  const auto a = dynamic::input<double>({4, 3, 3}, {"x", "", ""}), b = dynamic::input<double>({4, 3}, {"x", ""}),
             shared = dynamic::input<double>({3, 3});
  const dynamic::mesh m({{"x", 2}});
  const auto mapped = dynamic::compile(
      [](value x, value y, value z) {
        return std::tuple{vmap([](value p, value q) { return solve(p, q); })(x, y),
                          vmap([&](value q) { return solve(z, q); })(y)};
      },
      m, a, b, shared);
  const auto written = dynamic::compile(
      [](value x, value y, value z) {
        return std::tuple{solve(x, y), einsum<"ib->bi">(solve(z, einsum<"bi->ib">(y)))};
      },
      m, a, b, shared);
  std::vector<double> x(36), y(12), z(9);
  for (std::size_t i = 0; i < 36; ++i) x[i] = static_cast<double>(i * 29 % 17) - (i % 4 == 0 ? 30 : 3);
  for (std::size_t i = 0; i < 12; ++i) y[i] = static_cast<double>(i * 5 % 7);
  for (std::size_t i = 0; i < 9; ++i) z[i] = static_cast<double>(i * 5 % 7) + (i % 4 == 0 ? 9 : 0);
  const std::vector<const void*> given{x.data(), y.data(), z.data()};
  const auto got = mapped.run(simulated{}, given), want = written.run(simulated{}, given);
  for (std::size_t k = 0; k < 2; ++k)
    for (std::size_t e = 0; e < 12; ++e) CHECK(got[k].data<double>()[e] == doctest::Approx(want[k].data<double>()[e]));
}

TEST_CASE("linalg: gradients leave out what is not read and what is no function of the matrix") {
  const dynamic::mesh one({{"x", 1}});
  const std::vector<double> a{4, 2, 2, 5};  // l = [2, 0; 1, 2]
  // The square root of l has an infinite slope above the diagonal, where l is 0 for any a.
  const auto roots =
      dynamic::compile([](value m) { return grad(sum(sqrt(cholesky(m))), m); }, one, dynamic::input<double>({2, 2}));
  const auto by_a = roots.run(simulated{}, {static_cast<const void*>(a.data())});
  const auto f = [](double p, double q, double r) {  // of [p, q; q, r]
    const double l = std::sqrt(p);
    return std::sqrt(l) + std::sqrt(q / l) + std::pow(r - q * q / p, 0.25);
  };
  const double h = 1e-6, off = (f(4, 2 + h, 5) - f(4, 2 - h, 5)) / (2 * h) / 2;
  const double want[] = {(f(4 + h, 2, 5) - f(4 - h, 2, 5)) / (2 * h), off, off, (f(4, 2, 5 + h) - f(4, 2, 5 - h)) / (2 * h)};
  for (std::size_t i = 0; i < 4; ++i) CHECK(by_a[0].data<double>()[i] == doctest::Approx(want[i]).epsilon(1e-7));

  // The gradient with respect to a unit diagonal is 0, also next to an infinity.
  const auto unit =
      dynamic::compile([](value m, value b) { return grad(sum(triangular_solve(m, b, {.unit_diagonal = true})), m); }, one,
                       dynamic::input<double>({2, 2}), dynamic::input<double>({2}));
  const std::vector<double> b{std::numeric_limits<double>::infinity(), 1};
  const auto g = unit.run(simulated{}, {static_cast<const void*>(a.data()), static_cast<const void*>(b.data())});
  CHECK(g[0].data<double>()[0] == 0);
  CHECK(g[0].data<double>()[3] == 0);
}

TEST_CASE("linalg: flops of small matrices count") {
  const dynamic::mesh one({{"x", 1}});
  const auto flops = [&](auto f, auto... in) { return dynamic::compile(f, one, in...).flops_per_device(); };
  const auto factor = [](value a) { return allow_replication(cholesky(a)); };
  CHECK(flops(factor, dynamic::input<double>({300, 1, 1})) == 100);  // a third of n^3 each
  CHECK(flops(factor, dynamic::input<double>({300, 2, 2})) == 800);
}

TEST_CASE("linalg: mistakes have words") {
  const dynamic::mesh m({{"x", 2}});
  const auto refusal = [&](auto f, auto... x) {
    return caught::refusal([&] { static_cast<void>(dynamic::compile(f, m, x...)); });
  };
  const auto factor = [](value a) { return cholesky(a); };
  const auto both = [](value a, value b) { return solve(a, b); };
  const auto f64 = [](std::vector<std::int64_t> s) { return dynamic::input<double>(s); };
  const auto says = [&](const std::string& got, const std::string& words) { return got.find(words) != std::string::npos; };
  CHECK(says(refusal(factor, dynamic::input<std::int32_t>({3, 3})),
             "is given s32; it takes float, double and complex numbers; convert before and after it"));
  CHECK(says(refusal(factor, f64({3})), ": is given [3]; it takes 2 to 8 dims; the last two are those of a matrix"));
  CHECK(says(refusal(factor, f64({2, 3, 4})), "cholesky"));
  CHECK(says(refusal(factor, f64({2, 3, 4})), ": is given [2,3,4]; the last two dims, a matrix, are equal"));
  const std::string fits = "; these have its type and all its dims but the last one";
  CHECK(says(refusal(both, f64({3, 3}), f64({4, 2})), ": is given matrices f64[3,3] and right-hand sides f64[4,2]" + fits));
  CHECK(says(refusal(both, f64({3, 3}), dynamic::input<float>({3, 2})),
             ": is given matrices f64[3,3] and right-hand sides f32[3,2]" + fits));
  CHECK(says(refusal([](value a, value b) { return triangular_solve(a, b); }, f64({2, 3, 3}), f64({4, 3, 1})),
             ": is given matrices f64[2,3,3] and right-hand sides f64[4,3,1]" + fits));
  CHECK(says(refusal([](value a) { return vmap([](value x) { return cholesky(x); })(a); }, f64({2, 1, 1, 1, 1, 1, 1, 3, 3})),
             "is in a vmap and would have 9 dims; it takes at most 8"));
  // A single matrix has no other dim that could be split.
  CHECK(refusal(factor, dynamic::input<double>({8, 8}, {"x", ""})).find("takes whole matrices: it would gather") !=
        std::string::npos);
  const auto allowed =
      dynamic::compile([](value a) { return allow_replication(cholesky(a)); }, m, dynamic::input<double>({8, 8}, {"x", ""}));
  CHECK(allowed.traffic().bytes > 0);
}
