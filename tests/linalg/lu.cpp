// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Factors are right for the matrix, determinants equal the definition, gradients equal finite differences, and every
// sharding gives the results of a single device.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/linalg/lu.hpp>
#include <gspmd/linalg/solve.hpp>
#include <gspmd/transform/vmap.hpp>

#include "support/error_of.hpp"
#include "support/random_program.hpp"

namespace pivots {

using namespace gspmd;
using std::int64_t;

/// Returns the determinant by its definition: the sum over all orders of the columns.
template <class T>
long double determinant(int64_t n, const T* a) {
  std::vector<int> columns(static_cast<std::size_t>(n));
  std::iota(columns.begin(), columns.end(), 0);
  long double sum = 0;
  do {
    long double product = 1;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      product *= static_cast<long double>(a[static_cast<int64_t>(i) * n + columns[i]]);
      for (std::size_t j = 0; j < i; ++j)
        if (columns[j] > columns[i]) product = -product;
    }
    sum += product;
  } while (std::next_permutation(columns.begin(), columns.end()));
  return sum;
}

/// Returns the difference between l u and the rows of a in their order, divided by n. Returns infinity if the order is
/// invalid, or an element of l is larger than 1.
template <class T>
double mistake(int64_t n, const T* a, const T* factors, const std::int32_t* order) {
  std::vector<int> seen(static_cast<std::size_t>(n), 0);
  double worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (order[i] < 0 || order[i] >= n || ++seen[static_cast<std::size_t>(order[i])] > 1) return INFINITY;
    for (int64_t j = 0; j < n; ++j) {
      double sum = i <= j ? static_cast<double>(factors[i * n + j]) : 0;
      for (int64_t k = 0; k < std::min(i, j + 1); ++k)
        sum += static_cast<double>(factors[i * n + k]) * static_cast<double>(factors[k * n + j]);
      const double wrong = std::fabs(sum - static_cast<double>(a[order[i] * n + j])) / static_cast<double>(n);
      worst = std::max(worst, wrong);
      if (!(wrong < INFINITY)) return INFINITY;
      if (j < i && !(std::fabs(factors[i * n + j]) <= 1)) return INFINITY;
    }
  }
  return worst;
}

constexpr auto all_of = [](auto a) {
  const auto [factors, order] = lu(a);
  const auto [sign, log_size] = slogdet(a);
  return std::tuple{factors, order, sign, log_size, det(a), inv(a)};
};
template <class T>
std::vector<dynamic::any_array> one_by_one(const std::vector<T>& a, std::vector<int64_t> shape) {
  return dynamic::compile(all_of, dynamic::mesh({{"x", 1}}), dynamic::input<T>(shape))
      .run(simulated{}, {static_cast<const void*>(a.data())});
}
template <class T>
std::vector<T> drawn(int64_t count, reference::random_numbers& random) {
  std::vector<T> a(static_cast<std::size_t>(count));
  for (auto& e : a) e = static_cast<T>(random.between(-1000, 1000)) / T(500);
  return a;
}

/// Matrices of equal size. The second has two equal rows, the third is a permutation, the fourth is 0.
template <class T>
void check_sizes(int64_t n, double tolerance) {
  reference::random_numbers random(static_cast<unsigned>(n));
  constexpr int64_t count = 4;
  auto a = drawn<T>(count * n * n, random);
  const auto of = [n](int64_t m, int64_t i, int64_t j) { return static_cast<std::size_t>((m * n + i) * n + j); };
  for (int64_t i = 0; i < n; ++i) {
    a[of(1, n - 1, i)] = n == 1 ? T(0) : a[of(1, 0, i)];
    for (int64_t j = 0; j < n; ++j) {
      a[of(2, i, j)] = j == (i + 1) % n ? T(1) : T(0);
      a[of(3, i, j)] = 0;
    }
  }
  const auto r = one_by_one<T>(a, {count, n, n});
  CAPTURE(n);
  for (int64_t m = 0; m < count; ++m) {
    CAPTURE(m);
    const T *const matrix = a.data() + m * n * n, *const factors = r[0].template data<T>() + m * n * n;
    CHECK(mistake(n, matrix, factors, r[1].template data<std::int32_t>() + m * n) < tolerance);
    const auto sign = static_cast<double>(r[2].template data<T>()[m]), log_size = static_cast<double>(r[3].template data<T>()[m]),
               found = static_cast<double>(r[4].template data<T>()[m]);
    if (m == 2) CHECK((sign == (n % 2 == 0 ? -1 : 1) && log_size == 0 && found == sign));
    if (m == 3) CHECK((sign == 0 && log_size == -INFINITY && found == 0));
    if (n <= 7) {
      const auto wanted = static_cast<double>(determinant(n, matrix));
      double size = 1;  // Hadamard: no determinant is larger than the product of the lengths of the rows
      for (int64_t i = 0; i < n; ++i) {
        double square = 0;
        for (int64_t j = 0; j < n; ++j) square += std::pow(static_cast<double>(matrix[i * n + j]), 2);
        size *= std::sqrt(square) + 1;
      }
      CHECK(std::fabs(found - wanted) <= tolerance * size * 10);
      if (m == 0)
        CHECK((sign == (wanted < 0 ? -1 : 1) && std::fabs(std::exp(log_size) - std::fabs(wanted)) <= tolerance * size * 10));
    }
    const T* const inverted = r[5].template data<T>() + m * n * n;
    if (m == 3) CHECK(std::isnan(inverted[0]));
    for (int64_t i = 0; m == 2 && i < n * n; ++i) CHECK(inverted[i] == matrix[i % n * n + i / n]);
  }
}

}  // namespace pivots

TEST_CASE("lu: sizes, singular matrices, orders of rows, beside the definition of determinants") {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 6, 7, 15, 16, 17, 33, 64, 100}) {
    pivots::check_sizes<double>(n, 1e-14);
    pivots::check_sizes<float>(n, 1e-5);
  }
}

TEST_CASE("lu: a determinant within the range of its type, of a product that leaves it on the way") {
  std::vector<double> a(6 * 16, 0.0);  // the determinants of two matrices themselves leave the range
  const double diagonals[6][4] = {{1e-200, 1e-200, 1e200, 1e200}, {1e200, -1e200, 1e-200, 1e-200}, {1e-160, 1e-161, 1e160, 1e161},
                                  {1e-200, 1e-200, 1, 1},         {1e200, -1e200, 1, 1},           {1e200, 1e200, 1, 0}};
  for (std::size_t m = 0; m < 6; ++m)
    for (std::size_t i = 0; i < 4; ++i) a[m * 16 + i * 5] = diagonals[m][i];
  const auto r = pivots::one_by_one<double>(a, {6, 4, 4});
  const double* const found = r[4].data<double>();
  CHECK(found[0] == doctest::Approx(1).epsilon(1e-15));
  CHECK(found[1] == doctest::Approx(-1).epsilon(1e-15));
  CHECK(found[2] == doctest::Approx(1).epsilon(1e-15));
  CHECK(found[3] == 0);
  CHECK(found[4] == -INFINITY);
  CHECK(found[5] == 0);
}

TEST_CASE("lu: random meshes, uneven, more devices than matrices: the bits of one device, and nothing is sent") {
  using namespace pivots;
  reference::random_numbers random(6);
  const std::vector<std::array<int64_t, 2>> meshes = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 2}, {1, 5}};
  for (int round = 0; round < 40; ++round) {
    std::vector<int64_t> shape;
    for (int d = random.between(0, 2); d > 0; --d) shape.push_back(random.between(1, 5));
    const std::size_t free = shape.size();
    const int64_t n = random.between(1, 7);
    shape.insert(shape.end(), {n, n});
    const auto& sizes = random.one_of(meshes);
    std::vector<std::string> split(shape.size());
    for (const char* axis : {"x", "y"})
      if (free > 0) {
        auto& names = split[static_cast<std::size_t>(random.between(0, static_cast<int>(free) - 1))];
        names += (names.empty() ? "" : ",") + std::string(axis);
      }
    const auto p =
        dynamic::compile(all_of, dynamic::mesh({{"x", sizes[0]}, {"y", sizes[1]}}), dynamic::input<double>(shape, split));
    // A split dim of extent 1 belongs to one device, and all other devices compute the same.
    if (std::find(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(free), 1) ==
        shape.begin() + static_cast<std::ptrdiff_t>(free))
      CHECK(p.traffic().bytes == 0);
    const auto a = drawn<double>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()), random);
    const auto found = p.run(simulated{}, {static_cast<const void*>(a.data())}), wanted = one_by_one<double>(a, shape);
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      CHECK(found[k].shape == wanted[k].shape);
      CHECK(found[k].bytes == wanted[k].bytes);
    }
  }
}

TEST_CASE("lu: gradients are those of differences, on two devices, also of a determinant beside its logarithm") {
  using namespace pivots;
  const std::vector<int64_t> shape{3, 4, 4};
  reference::random_numbers random(8);
  const auto a = drawn<double>(48, random);
  const auto weighted = [](value x) {
    const auto own = x.shape();
    std::vector<int64_t> all(own.begin(), own.end());
    value w = iota<int64_t>(x, all, 0) * int64_t{3};
    for (int d = 1; d < x.rank(); ++d) w = w * int64_t{3} + iota<int64_t>(x, all, d);
    return sum(x * (cast<double>(w % int64_t{5}) - 1.5));
  };
  const auto check = [&](auto f) {
    const auto p = dynamic::compile([f](value x) { return grad(f(x), x); }, dynamic::mesh({{"x", 2}}),
                                    dynamic::input<double>(shape, {"x", "", ""}));
    const auto g = p.run(simulated{}, {static_cast<const void*>(a.data())});
    const auto plain = dynamic::compile(f, dynamic::mesh({{"x", 1}}), dynamic::input<double>(shape));
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto loss = [&](double shift) {
        auto moved = a;
        moved[i] += shift;
        return plain.run(simulated{}, {static_cast<const void*>(moved.data())})[0].template data<double>()[0];
      };
      const double h = 1e-4, slope = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h);
      CAPTURE(i);
      CHECK(std::fabs(g[0].template data<double>()[i] - slope) <= 1e-7 * (1 + std::fabs(slope)));
    }
  };
  check([&](value x) { return weighted(lu(x).first); });
  check([&](value x) { return weighted(slogdet(x).second); });
  check([&](value x) { return weighted(det(x)); });
  check([&](value x) { return weighted(inv(x)); });
  check([&](value x) {
    const auto [sign, log_size] = slogdet(x);
    return weighted(log_size * sign) + weighted(sign * det(x));
  });
}

namespace {

using namespace gspmd;

constexpr auto log_density = [](auto covariance, auto x) {
  const auto [sign, log_size] = slogdet(covariance);
  return -0.5 * (log_size + einsum<"mi,mi->m">(x, solve(covariance, x)));
};
using many = compile<log_density, mesh<axis<"x", 2>>, input<double, shape<6, 3, 3>, split<"x", _, _>>,
                     input<double, shape<6, 3>, split<"x", _>>>;
static_assert(many::traffic.bytes == 0);
constexpr auto inverse_of_result = [](auto x) { return inv(x * 2.0); };
using doubled = compile<inverse_of_result, mesh<axis<"x", 2>>, input<double, shape<6, 3, 3>, split<"x", _, _>>>;
static_assert(doubled::traffic.bytes == 0);  // a constant expression, so no moved nodes are read

}  // namespace

TEST_CASE("lu: compiled on threads, with vmap, and one matrix without a dim before it") {
  array<double> a({6, 3, 3}), x({6, 3});
  for (std::size_t i = 0; i < 54; ++i) a.data()[i] = static_cast<double>(i * 29 % 17) - (i % 4 == 0 ? 30 : 3);
  for (std::size_t i = 0; i < 18; ++i) x.data()[i] = static_cast<double>(i * 5 % 7);
  const array<double> y = run<many>(threads{}, a, x);
  std::vector<double> given(a.begin(), a.end());
  for (std::size_t m = 0; m < 6; ++m) {
    // Cramer's rule: one column at a time is replaced by x.
    const auto whole = static_cast<double>(pivots::determinant(3, given.data() + m * 9));
    double form = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      std::vector<double> replaced(given.begin() + static_cast<std::ptrdiff_t>(m * 9),
                                   given.begin() + static_cast<std::ptrdiff_t>(m * 9 + 9));
      for (std::size_t i = 0; i < 3; ++i) replaced[i * 3 + c] = x.data()[m * 3 + i];
      form += x.data()[m * 3 + c] * static_cast<double>(pivots::determinant(3, replaced.data())) / whole;
    }
    CHECK(y.data()[m] == doctest::Approx(-0.5 * (std::log(std::fabs(whole)) + form)));
  }
  const auto mapped = dynamic::compile(
      [](value all) {
        return vmap([](value one) {
          const auto [factors, order] = lu(one);
          return std::tuple{factors, order, det(one)};
        })(all);
      },
      dynamic::mesh({{"x", 2}}), dynamic::input<double>({6, 3, 3}, {"x", "", ""}));
  const auto r = mapped.run(simulated{}, {static_cast<const void*>(given.data())});
  const auto alone = pivots::one_by_one(given, {6, 3, 3});
  CHECK((r[0].bytes == alone[0].bytes && r[1].bytes == alone[1].bytes && r[2].bytes == alone[4].bytes));

  given.resize(9);
  const auto one = pivots::one_by_one(given, {3, 3});
  CHECK(one[4].shape.empty());
  CHECK(one[4].data<double>()[0] == alone[4].data<double>()[0]);

  given[4] = std::numeric_limits<double>::quiet_NaN();
  const auto with_nan = pivots::one_by_one(given, {3, 3});
  for (const std::size_t k : {2U, 3U, 4U, 5U}) CHECK(std::isnan(with_nan[k].data<double>()[0]));
}

TEST_CASE("lu: signs and logarithms of infinite pivots are numpy's") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  // numpy.linalg.slogdet of each: the sign and the logarithm; and the determinant, which is the sign times the
  // exponential of the logarithm.
  const std::vector<std::array<double, 4>> a = {{inf, 1, 1, 1},  {-inf, 1, 1, 1}, {1, 1, inf, 1},
                                                {2, 0, 0, -inf}, {inf, 0, 0, 0},  {0, -inf, 0, 0}};
  const std::vector<std::array<double, 3>> wanted = {{1, inf, inf},   {-1, inf, -inf}, {-1, inf, -inf},
                                                     {-1, inf, -inf}, {0, -inf, 0},    {0, -inf, 0}};
  std::vector<double> all;
  for (const auto& m : a) all.insert(all.end(), m.begin(), m.end());
  const auto r = pivots::one_by_one<double>(all, {static_cast<std::int64_t>(a.size()), 2, 2});
  for (std::size_t m = 0; m < a.size(); ++m)
    for (std::size_t k = 0; k < 3; ++k) {
      CAPTURE(m);
      CHECK(r[2 + k].data<double>()[m] == wanted[m][k]);
    }
}

TEST_CASE("lu: flops, and mistakes have words") {
  const auto flops = [&](auto f) {
    return dynamic::compile(f, dynamic::mesh({{"x", 1}}), dynamic::input<double>({4, 30, 30})).flops_per_device();
  };
  CHECK(flops([](value a) { return lu(a).second; }) == 4 * 2 * 9000);
  CHECK(flops([](value a) { return det(a); }) == 4 * 2 * 9000);
  const auto refusal = [&](auto f, const dynamic::input_spec& in) {
    return caught::refusal([&] { static_cast<void>(dynamic::compile(f, dynamic::mesh({{"x", 2}}), in)); });
  };
  const auto says = [&](const std::string& got, const std::string& words) { return got.find(words) != std::string::npos; };
  const auto every = [&](const dynamic::input_spec& in, const std::string& words) {
    const auto check = [&](const std::string& name, auto f) {
      const std::string got = refusal(f, in);
      CHECK((got.rfind(name + " at ", 0) == 0 && says(got, words)));
    };
    check("lu", [](value a) { return lu(a); });
    check("slogdet", [](value a) { return slogdet(a); });
    check("det", [](value a) { return det(a); });
    check("inv", [](value a) { return inv(a); });
  };
  every(dynamic::input<int>({3, 3}), ": is given s32; it takes float, double and complex numbers; convert before and after it");
  every(dynamic::input<float>({2, 3, 4}), ": is given [2,3,4]; the last two dims, a matrix, are equal");
  every(dynamic::input<float>({3}), ": is given [3]; it takes 2 to 8 dims; the last two are those of a matrix");
  const std::string gathers = "takes whole matrices: it would gather";
  CHECK(says(refusal([](value a) { return lu(a); }, dynamic::input<float>({8, 8}, {"x", ""})), gathers));
  CHECK(says(refusal([](value a) { return det(a); }, dynamic::input<float>({8, 8}, {"", "x"})), gathers));
}
