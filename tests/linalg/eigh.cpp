// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Eigenvectors and eigenvalues satisfy their equation, gradients equal finite differences, and every sharding gives the
// results of a single device.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/linalg/eigh.hpp>
#include <gspmd/transform/vmap.hpp>

#include "support/error_of.hpp"
#include "support/random_program.hpp"

namespace eigen {

using namespace gspmd;
using std::int64_t;

/// Returns the largest error for matrices [count, n, n], divided by the size of the matrix and n. The errors are of a v
/// = v w, of v^T v = 1 and of the ascending order of w.
template <class T>
double mistake(int64_t count, int64_t n, const T* a, const T* w, const T* v) {
  double worst = 0;
  const auto note = [&](double wrong) {
    if (!(wrong <= worst)) worst = wrong;
  };
  for (int64_t m = 0; m < count; ++m, a += n * n, v += n * n, w += n) {
    double size = 0;
    for (int64_t i = 0; i < n * n; ++i) size = std::max(size, std::fabs(static_cast<double>(a[i])));
    if (size == 0) size = 1;
    const auto at = [n](const T* x, int64_t i, int64_t j) { return static_cast<double>(x[i * n + j]); };
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double by_a = 0, products = 0;
        for (int64_t k = 0; k < n; ++k) {
          by_a += 0.5 * (at(a, i, k) + at(a, k, i)) * at(v, k, j);
          products += at(v, k, i) * at(v, k, j);
        }
        note(std::fabs(by_a - at(v, i, j) * static_cast<double>(w[j])) / (size * static_cast<double>(n)));
        note(std::fabs(products - (i == j ? 1 : 0)) / static_cast<double>(n));
      }
    for (int64_t i = 1; i < n; ++i) note(w[i - 1] <= w[i] ? 0 : INFINITY);
  }
  return worst;
}
template <class T>
struct found {
  std::vector<T> w, v;
};
template <class T>
found<T> one_by_one(const std::vector<T>& a, int64_t count, int64_t n) {
  const auto p = dynamic::compile([](value x) { return eigh(x); }, dynamic::mesh({{"x", 1}}), dynamic::input<T>({count, n, n}));
  const auto r = p.run(simulated{}, {static_cast<const void*>(a.data())});
  return {{r[0].template data<T>(), r[0].template data<T>() + count * n},
          {r[1].template data<T>(), r[1].template data<T>() + count * n * n}};
}

}  // namespace eigen

TEST_CASE("eigh: all sizes up to 40, random, of few distinct values, diagonal, of low rank, large and small numbers") {
  using namespace eigen;
  reference::random_numbers random(3);
  const auto check = [&](auto zero, int64_t n, double tolerance) {
    using T = decltype(zero);
    constexpr int64_t kinds = 7;
    std::vector<T> a(static_cast<std::size_t>(kinds * n * n));
    for (int64_t kind = 0; kind < kinds; ++kind)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double x = random.between(-1000, 1000) / 1000.0;
          if (kind == 1) x = i == j ? static_cast<double>(i % 3) : 0;
          if (kind == 2) x = 1;  // of rank 1: n - 1 equal values
          if (kind == 3) x = std::abs(i - j) == 1 ? 1 : 0;
          if (kind == 4) x *= 1e30;
          if (kind == 5) x *= i == j ? 1 : 1e-12;
          if (kind == 6) x = 0;
          a[static_cast<std::size_t>((kind * n + i) * n + j)] = static_cast<T>(x);
        }
    const auto f = one_by_one<T>(a, kinds, n);
    CAPTURE(n);
    CHECK(mistake(kinds, n, a.data(), f.w.data(), f.v.data()) < tolerance);
  };
  for (int64_t n = 1; n <= 40; ++n) {
    check(double{}, n, 1.5e-15);
    check(float{}, n, 8e-7);
  }
  for (const int64_t n : {64, 100, 129}) check(double{}, n, 1.5e-15);
}

TEST_CASE("eigh: known values of the second difference") {
  using namespace eigen;
  constexpr int64_t n = 12;
  std::vector<double> a(n * n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    a[i * n + i] = 2;
    if (i > 0) a[i * n + i - 1] = a[(i - 1) * n + i] = -1;
  }
  const auto f = one_by_one<double>(a, 1, n);
  for (std::size_t k = 0; k < n; ++k) {
    const double sine = std::sin(static_cast<double>(k + 1) * std::acos(-1.0) / (2 * (n + 1)));
    CHECK(f.w[k] == doctest::Approx(4 * sine * sine).epsilon(1e-14));
  }
}

TEST_CASE("eigh: random meshes, uneven, more devices than matrices: as one device") {
  using namespace eigen;
  reference::random_numbers random(5);
  const std::vector<std::array<int64_t, 2>> meshes = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 2}, {1, 5}};
  for (int round = 0; round < 60; ++round) {
    const int64_t rows = random.between(1, 5), columns = random.between(1, 4), n = random.between(1, 7);
    const auto& sizes = random.one_of(meshes);
    const dynamic::mesh m({{"x", sizes[0]}, {"y", sizes[1]}});
    std::vector<std::string> split(4);
    split[static_cast<std::size_t>(random.between(0, 1))] = "x";
    auto& second = split[static_cast<std::size_t>(random.between(0, 1))];
    second += second.empty() ? "y" : ",y";
    const auto p = dynamic::compile([](value x) { return eigh(x); }, m, dynamic::input<double>({rows, columns, n, n}, split));
    std::vector<double> a(static_cast<std::size_t>(rows * columns * n * n));
    for (auto& e : a) e = random.between(-1000, 1000) / 500.0;
    const auto r = p.run(simulated{}, {static_cast<const void*>(a.data())});
    const auto f = one_by_one<double>(a, rows * columns, n);
    CHECK(r[0].shape == std::vector<int64_t>{rows, columns, n});
    CHECK(std::equal(f.w.begin(), f.w.end(), r[0].data<double>()));
    CHECK(std::equal(f.v.begin(), f.v.end(), r[1].data<double>()));
  }
}

namespace {

using namespace gspmd;

/// Two functions that do not depend on signs of vectors: a function of values, and one of the matrices v f(w) v^T.
constexpr auto functions_of = [](auto a) {
  const auto [w, v] = eigh(a);
  const value wide = broadcast_in_dim(exp(w), v.shape(), {0, 2});
  const value root = einsum<"mij,mkj->mik">(v * wide, v);
  const value weights = iota<double>(a, a.shape(), 1) + 2.0 * iota<double>(a, a.shape(), 2);
  return sum(w * w * w) + sum(root * weights);
};
using many = compile<functions_of, mesh<axis<"x", 2>>, input<double, shape<6, 5, 5>, split<"x", _, _>>>;
static_assert(many::traffic.bytes == sizeof(double));  // the sum

}  // namespace

TEST_CASE("eigh: gradients are those of differences; by vectors of equal values there are none") {
  constexpr auto of_values = [](auto x) {
    const value w = eigh(x).first;
    return sum(w * w * w) + sum(exp(w));
  };
  std::vector<double> a(3 * 16);
  reference::random_numbers random(8);
  for (auto& e : a) e = random.between(-100, 100) / 100.0;
  const auto in = dynamic::input<double>({3, 4, 4}, {"x", "", ""}), whole = dynamic::input<double>({3, 4, 4});
  const auto numbers = [](const std::vector<dynamic::any_array>& all) { return all[0].data<double>(); };
  const auto gradient_of = [&](auto f) {
    const auto p = dynamic::compile([f](value x) { return grad(f(x), x); }, dynamic::mesh({{"x", 2}}), in);
    const auto g = p.run(simulated{}, {static_cast<const void*>(a.data())});
    return std::vector<double>(numbers(g), numbers(g) + a.size());
  };
  const auto check = [&](auto f, std::size_t count) {
    const auto plain = dynamic::compile(f, dynamic::mesh({{"x", 1}}), whole);
    const auto g = gradient_of(f);
    const double h = 1e-5;
    for (std::size_t i = 0; i < count; ++i) {
      auto up = a, down = a;
      up[i] += h;
      down[i] -= h;
      CAPTURE(i);
      CHECK(g[i] ==
            doctest::Approx((*numbers(plain.run(serial{}, up)) - *numbers(plain.run(serial{}, down))) / (2 * h)).epsilon(1e-6));
    }
  };
  for (std::size_t i = 0; i < 16; ++i) a[32 + i] = i % 5 == 0 ? (i < 10 ? 1 : 3) : 0;  // two values, twice each
  check(functions_of, 32);
  CHECK(!std::isfinite(gradient_of(functions_of)[32]));
  check(of_values, 48);
}

TEST_CASE("eigh: compiled on threads, with vmap, and a matrix with a NaN leaves the others alone") {
  array<double> a({6, 5, 5});
  unsigned seed = 5;
  for (auto& e : a) e = static_cast<double>((seed = seed * 1664525U + 1013904223U) >> 20) / 4096.0 - 0.5;
  const auto p = dynamic::compile(functions_of, dynamic::mesh({{"x", 1}}), dynamic::input<double>({6, 5, 5}));
  const array<double> total = run<many>(threads{}, a);
  CHECK(total[0] == doctest::Approx(p.run(serial{}, a)[0].data<double>()[0]));

  const auto mapped = dynamic::compile([](value x) { return vmap([](value one) { return std::get<0>(eigh(one)); })(x); },
                                       dynamic::mesh({{"x", 2}}), dynamic::input<double>({6, 5, 5}, {"x", "", ""}));
  std::vector<double> given(a.begin(), a.end());
  const auto alone = eigen::one_by_one<double>(given, 6, 5);
  const auto of_each = mapped.run(simulated{}, given);
  CHECK(std::equal(alone.w.begin(), alone.w.end(), of_each[0].data<double>()));

  given[2 * 25 + 7] = std::numeric_limits<double>::infinity();
  const auto with_infinity = eigen::one_by_one<double>(given, 6, 5);
  for (std::size_t m = 0; m < 6; ++m)
    for (std::size_t i = 0; i < 5; ++i)
      CHECK((m == 2 ? std::isnan(with_infinity.w[m * 5 + i]) && std::isnan(with_infinity.v[m * 25 + 3 * i])
                    : with_infinity.w[m * 5 + i] == alone.w[m * 5 + i]));
}

TEST_CASE("eigh: of numbers of which twice as many are infinite") {
  std::vector<double> a{0x1p1023, 0x1p1022, 0x1p1022, 0x1p1023};
  const auto large = eigen::one_by_one<double>(a, 1, 2);
  CHECK(large.w[0] == doctest::Approx(0x1p1022));
  CHECK(large.w[1] == doctest::Approx(0x1.8p1023));
}

TEST_CASE("eigh: mistakes have words") {
  const auto refusal = [&](const dynamic::input_spec& in) {
    return caught::refusal([&] {
      static_cast<void>(dynamic::compile([](value a) { return eigh(a); }, dynamic::mesh({{"x", 2}}), in));
    });
  };
  CHECK(refusal(dynamic::input<int>({3, 3})).find("is given s32; it takes float, double and complex numbers") !=
        std::string::npos);
  CHECK(refusal(dynamic::input<float>({2, 3, 4})).find("is given [2,3,4]; the last two dims, a matrix, are equal") !=
        std::string::npos);
  CHECK(refusal(dynamic::input<float>({3})).find("eigh") != std::string::npos);
  CHECK(refusal(dynamic::input<float>({8, 8}, {"x", ""})).find("takes whole matrices: it would gather") != std::string::npos);
}
