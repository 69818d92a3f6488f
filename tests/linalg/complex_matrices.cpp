// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Complex matrices: factors and solutions satisfy their equations, gradients equal finite differences, and every
// sharding gives the results of a single device.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/linalg/eigh.hpp>
#include <gspmd/linalg/lu.hpp>
#include <gspmd/linalg/solve.hpp>
#include <gspmd/transform/vmap.hpp>

#include "support/error_of.hpp"
#include "support/random_program.hpp"

namespace complex_matrices {

using namespace gspmd;
using std::int64_t;
using number = std::complex<double>;

/// A matrix of exact numbers with contiguous rows.
struct matrix {
  int64_t rows, columns;
  std::vector<number> of;

  template <class T>
  matrix(int64_t m, int64_t n, const T* from) : rows(m), columns(n), of(from, from + m * n) {}
  matrix(int64_t m, int64_t n) : rows(m), columns(n), of(static_cast<std::size_t>(m * n)) {}
  number& operator()(int64_t i, int64_t j) { return of[static_cast<std::size_t>(i * columns + j)]; }
  const number& operator()(int64_t i, int64_t j) const { return of[static_cast<std::size_t>(i * columns + j)]; }

  [[nodiscard]] matrix adjoint() const {
    matrix r(columns, rows);
    for (int64_t i = 0; i < columns; ++i)
      for (int64_t j = 0; j < rows; ++j) r(i, j) = std::conj((*this)(j, i));
    return r;
  }
  friend matrix operator*(const matrix& a, const matrix& b) {
    matrix r(a.rows, b.columns);
    for (int64_t i = 0; i < r.rows; ++i)
      for (int64_t j = 0; j < r.columns; ++j)
        for (int64_t k = 0; k < a.columns; ++k) r(i, j) += a(i, k) * b(k, j);
    return r;
  }
  /// Returns the largest difference, or infinity for NaN.
  [[nodiscard]] double far_from(const matrix& b) const {
    double worst = 0;
    for (std::size_t i = 0; i < of.size(); ++i) {
      const double d = std::abs(of[i] - b.of[i]);
      if (!(d < INFINITY)) return INFINITY;
      worst = std::max(worst, d);
    }
    return worst;
  }
};
/// Returns a Hermitian, positive definite matrix: (a + a^H) / 2 with a larger diagonal, like `positive`.
matrix positive_of(const matrix& a) {
  matrix p(a.rows, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.rows; ++j)
      p(i, j) = 0.5 * (a(i, j) + std::conj(a(j, i))) + (i == j ? 2.0 * static_cast<double>(a.rows) : 0.0);
  return p;
}
/// Expands along the first row.
number determinant(const matrix& a) {
  if (a.rows == 0) return 1;
  number sum{};
  for (int64_t c = 0; c < a.rows; ++c) {
    matrix rest(a.rows - 1, a.rows - 1);
    for (int64_t i = 1; i < a.rows; ++i)
      for (int64_t j = 0, to = 0; j < a.rows; ++j)
        if (j != c) rest(i - 1, to++) = a(i, j);
    sum += (c % 2 == 0 ? 1.0 : -1.0) * a(0, c) * determinant(rest);
  }
  return sum;
}

/// Returns a with a larger diagonal. Its triangles differ, because only their mean matters.
value positive(value a) {
  const auto s = a.shape();
  const auto rank = static_cast<int>(s.size());
  const value ones = cast<double>(equal(iota<int64_t>(a, s, rank - 2), iota<int64_t>(a, s, rank - 1)));
  const value wide = 2.0 * static_cast<double>(s[rank - 1]) * ones;
  return a + (a.type() == dtype::c64 ? cast<c64>(complex(wide, 0.0 * wide)) : complex(wide, 0.0 * wide));
}
const auto all_of = [](value a, value b) {
  const value p = positive(a);
  const auto [factors, order] = lu(a);
  const auto [sign, log_size] = slogdet(a);
  const auto [w, v] = eigh(a);
  return std::tuple{cholesky(p),
                    solve_positive(p, b),
                    solve(a, b),
                    triangular_solve(p, b),
                    triangular_solve(p, b, {.lower = false}),
                    triangular_solve(conj(p), b, {.transposed = true}),
                    triangular_solve(p, b, {.transposed = true, .unit_diagonal = true}),
                    factors,
                    order,
                    sign,
                    log_size,
                    det(a),
                    inv(a),
                    w,
                    v};
};

struct setting {
  std::vector<int64_t> batch;
  int64_t n = 1, k = 1;
  std::vector<std::string> a_split, b_split;

  [[nodiscard]] std::vector<int64_t> shape(int64_t columns) const {
    auto s = batch;
    s.insert(s.end(), {n, columns});
    return s;
  }
  [[nodiscard]] int64_t matrices() const {
    int64_t all = 1;
    for (const auto e : batch) all *= e;
    return all;
  }
};
template <class T>
std::vector<std::complex<T>> drawn(int64_t count, reference::random_numbers& random) {
  std::vector<std::complex<T>> a(static_cast<std::size_t>(count));
  for (auto& e : a) {
    const auto re = static_cast<T>(random.between(-1000, 1000)) / T(500);
    e = {re, static_cast<T>(random.between(-1000, 1000)) / T(500)};
  }
  return a;
}
std::vector<const void*> pointers(const auto&... x) { return {static_cast<const void*>(x.data())...}; }

/// Returns the mistake in the results for a matrix, which begin at `at`, or "".
template <class T>
std::string mistake(const setting& s, const std::vector<std::complex<T>>& as, const std::vector<std::complex<T>>& bs,
                    const std::vector<dynamic::any_array>& r, int64_t m, double eps) {
  const int64_t n = s.n, k = s.k;
  const matrix a(n, n, as.data() + m * n * n), b(n, k, bs.data() + m * n * k), p = positive_of(a);
  const auto got = [&](std::size_t out, int64_t rows, int64_t columns) {
    return matrix(rows, columns, r[out].template data<std::complex<T>>() + m * rows * columns);
  };
  const double near = eps * static_cast<double>(n) * 20;
  // The error of a solution depends on the condition of a, so a x is compared, divided by the size of x.
  const auto solves = [&](const matrix& of, std::size_t out) {
    const matrix x = got(out, n, k);
    double size = 1;
    for (const auto& e : x.of) size = std::max(size, std::abs(e));
    return (of * x).far_from(b) <= near * size * 4;
  };
  const auto triangle = [&](bool lower, bool unit) {
    matrix t(n, n);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        if (i == j) t(i, j) = unit ? number(1) : a(i, j) + 2.0 * static_cast<double>(n);
        else if ((i > j) == lower) t(i, j) = a(i, j);
    return t;
  };
  const matrix l = got(0, n, n);
  if (!((l * l.adjoint()).far_from(p) <= near * static_cast<double>(n) * 4)) return "cholesky";
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i; j < n; ++j)
      if (j > i ? l(i, j) != number(0) : !(l(i, i).imag() == 0 && l(i, i).real() > 0)) return "the upper triangle of cholesky";
  if (!solves(p, 1)) return "solve_positive";
  if (!solves(a, 2)) return "solve";
  if (!solves(triangle(true, false), 3)) return "triangular_solve";
  if (!solves(triangle(false, false), 4)) return "triangular_solve, upper";
  if (!solves(triangle(true, false).adjoint(), 5)) return "triangular_solve, of the conjugate transpose";
  matrix plain = triangle(true, true).adjoint();
  for (auto& e : plain.of) e = std::conj(e);
  if (!solves(plain, 6)) return "triangular_solve, transposed";
  const matrix factors = got(7, n, n);
  const auto* const order = r[8].template data<std::int32_t>() + m * n;
  matrix lower(n, n), upper(n, n), in_order(n, n);
  std::vector<int> seen(static_cast<std::size_t>(n), 0);
  for (int64_t i = 0; i < n; ++i) {
    if (order[i] < 0 || order[i] >= n || ++seen[static_cast<std::size_t>(order[i])] > 1) return "the order of lu";
    for (int64_t j = 0; j < n; ++j) {
      (j < i ? lower : upper)(i, j) = factors(i, j);
      in_order(i, j) = a(order[i], j);
      // The pivot has the largest |re| + |im|.
      if (j < i && !(std::abs(factors(i, j)) <= std::sqrt(2.0) + 1e-6)) return "an element of l";
    }
    lower(i, i) = 1;
  }
  if (!((lower * upper).far_from(in_order) <= near * 8)) return "lu";
  const number sign = got(9, 1, 1)(0, 0), found = got(11, 1, 1)(0, 0);
  const auto log_size = static_cast<double>(r[10].template data<T>()[m]);
  if (!(std::abs(std::abs(sign) - 1) < 10 * eps)) return "the size of the sign";
  if (!(std::abs(sign * std::exp(log_size) - found) <= 100 * eps * static_cast<double>(n) * std::abs(found)) && n < 12)
    return "slogdet beside det";
  if (n <= 6 && !(std::abs(found - determinant(a)) <= 1000 * eps * std::pow(4.0, n))) return "det";
  const matrix inverted = got(12, n, n);
  double size = 1;
  for (const auto& e : inverted.of) size = std::max(size, std::abs(e));
  matrix one(n, n);
  for (int64_t i = 0; i < n; ++i) one(i, i) = 1;
  if (!((a * inverted).far_from(one) <= near * size * 4)) return "inverse";
  const matrix v = got(14, n, n);
  const T* const w = r[13].template data<T>() + m * n;
  matrix hermitian = p, scaled = v;
  for (int64_t i = 0; i < n; ++i) {
    hermitian(i, i) -= 2.0 * static_cast<double>(n);
    if (i > 0 && !(w[i - 1] <= w[i])) return "the order of eigenvalues";
    for (int64_t j = 0; j < n; ++j) scaled(i, j) *= static_cast<double>(w[j]);
  }
  if (!((v.adjoint() * v).far_from(one) <= near)) return "eigenvectors' products";
  if (!((hermitian * v).far_from(scaled) <= near * 4)) return "eigenvectors";
  return {};
}

template <class T>
dynamic::program program_of(const setting& s, const dynamic::mesh& m, bool split) {
  const auto names = [&](const std::vector<std::string>& n) { return split ? n : std::vector<std::string>(n.size()); };
  return dynamic::compile(all_of, m, dynamic::input<std::complex<T>>(s.shape(s.n), names(s.a_split)),
                          dynamic::input<std::complex<T>>(s.shape(s.k), names(s.b_split)));
}
template <class T>
std::string try_one(const setting& s, const dynamic::mesh& mesh, reference::random_numbers& random) {
  const auto a = drawn<T>(s.matrices() * s.n * s.n, random), b = drawn<T>(s.matrices() * s.n * s.k, random);
  const double eps = static_cast<double>(std::numeric_limits<T>::epsilon());
  const auto found = program_of<T>(s, mesh, true).run(simulated{}, pointers(a, b));
  for (int64_t m = 0; m < s.matrices(); ++m)
    if (const auto wrong = mistake(s, a, b, found, m, eps); !wrong.empty()) return wrong + " of matrix " + std::to_string(m);
  return {};
}

}  // namespace complex_matrices

TEST_CASE("complex matrices: random factors, systems, determinants and eigenvectors on random meshes") {
  using namespace complex_matrices;
  const std::vector<std::array<int64_t, 2>> meshes = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 2}, {1, 5}};
  reference::random_numbers random(17);
  for (int round = 0; round < 40; ++round) {
    setting s;
    for (int d = random.between(0, 2); d > 0; --d) s.batch.push_back(random.between(1, 4));
    s.n = round == 0 ? 70 : random.chance(20) ? random.between(15, 40) : random.between(1, 7);
    s.k = round == 0 ? 33 : random.between(1, 4);
    const auto& sizes = random.one_of(meshes);
    s.a_split.resize(s.batch.size() + 2);
    s.b_split.resize(s.batch.size() + 2);
    for (auto* const split : {&s.a_split, &s.b_split})
      for (const char* axis : {"x", "y"}) {
        const int last = static_cast<int>(s.batch.size()) - (split == &s.a_split ? 1 : 0);  // the columns of b too
        if (last < 0 || random.chance(30)) continue;
        const int d = random.between(0, last);
        auto& names = d == static_cast<int>(s.batch.size()) ? split->back() : (*split)[static_cast<std::size_t>(d)];
        names += (names.empty() ? "" : ",") + std::string(axis);
      }
    const dynamic::mesh m({{"x", sizes[0]}, {"y", sizes[1]}});
    const auto wrong = random.chance(70) ? try_one<double>(s, m, random) : try_one<float>(s, m, random);
    if (!wrong.empty())
      FAIL_CHECK("round " << round << ", n " << s.n << ", k " << s.k << ", mesh " << sizes[0] << " x " << sizes[1] << ": "
                          << wrong);
  }
}

TEST_CASE("complex matrices: gradients by both parts are those of differences, on two devices") {
  using namespace complex_matrices;
  constexpr int64_t count = 3, n = 4;
  reference::random_numbers random(9);
  const auto a = drawn<double>(count * n * n, random), b = drawn<double>(count * n * 2, random);
  // Gives every part of every element a different weight.
  const auto weighted = [](value x) {
    const auto shape = x.shape();
    std::vector<int64_t> all(shape.begin(), shape.end());
    value w = iota<int64_t>(x, all, 0) * int64_t{3};
    for (int d = 1; d < x.rank(); ++d) w = w * int64_t{3} + iota<int64_t>(x, all, d);
    const value one = cast<double>(w % int64_t{5}) - 1.5, other = cast<double>((w * w) % int64_t{7}) - 2.5;
    return x.type() == dtype::c128 ? sum(real(x) * one + imag(x) * other) : sum(x * one);
  };
  const auto losses = [&](value x, value y) {
    const value p = positive(x);
    const auto [sign, log_size] = slogdet(x);
    const auto [w, v] = eigh(x);
    const value wide = broadcast_in_dim(exp(0.3 * w), v.shape(), {0, 2});
    const value of_hermitian = einsum<"mij,mkj->mik">(v * complex(wide, 0.0 * wide), conj(v));
    return std::array{weighted(cholesky(p)),
                      weighted(solve_positive(p, y)),
                      weighted(solve(x, y)),
                      weighted(triangular_solve(p, y)),
                      weighted(triangular_solve(conj(p), y, {.transposed = true})),
                      weighted(triangular_solve(p, y, {.lower = false, .unit_diagonal = true})),
                      weighted(lu(x).first),
                      weighted(sign),
                      weighted(log_size),
                      weighted(det(x)),
                      weighted(sign * det(x)) + weighted(log_size * log_size),
                      weighted(inv(x)),
                      weighted(w * w * w),
                      weighted(of_hermitian)};
  };
  constexpr std::size_t kinds = 14;
  const auto in = [](std::vector<int64_t> s, const char* axis) { return dynamic::input<number>(s, {axis, "", ""}); };
  const auto plain = dynamic::compile([&](value x, value y) { return losses(x, y); }, dynamic::mesh({{"x", 1}}),
                                      in({count, n, n}, ""), in({count, n, 2}, ""));
  const auto differentiated = dynamic::compile(
      [&](value x, value y) {
        std::vector<value> all;
        for (const value loss : losses(x, y)) {
          const auto [by_a, by_b] = grad(loss, std::tuple{x, y});
          all.push_back(by_a);
          all.push_back(by_b);
        }
        return all;
      },
      dynamic::mesh({{"x", 2}}), in({count, n, n}, "x"), in({count, n, 2}, "x"));
  const auto g = differentiated.run(simulated{}, pointers(a, b));
  const double h = 1e-4;
  for (std::size_t by = 0; by < 2; ++by)
    for (std::size_t i = 0; i < (by == 0 ? a.size() : b.size()); ++i)
      for (const number direction : {number(1, 0), number(0, 1)}) {
        std::array<double, kinds> slope{};
        for (const auto& [steps, weight] : std::vector<std::array<double, 2>>{{1, 8}, {-1, -8}, {2, -1}, {-2, 1}}) {
          auto moved_a = a, moved_b = b;
          (by == 0 ? moved_a : moved_b)[i] += steps * h * direction;
          const auto f = plain.run(simulated{}, pointers(moved_a, moved_b));
          for (std::size_t loss = 0; loss < kinds; ++loss) slope[loss] += weight * f[loss].data<double>()[0] / (12 * h);
        }
        for (std::size_t loss = 0; loss < kinds; ++loss) {
          const number found = g[2 * loss + by].data<number>()[i];
          const double got = direction.real() > 0 ? found.real() : found.imag();
          CAPTURE(loss);
          CAPTURE(by);
          CAPTURE(i);
          CHECK(std::fabs(got - slope[loss]) <= 2e-7 * (1 + std::fabs(slope[loss])));
        }
      }
}

namespace {

using namespace gspmd;

constexpr auto complex_systems = [](auto a, auto b) {
  const auto [w, v] = eigh(a);
  return std::tuple{solve(a, b), w, det(a), cholesky(a)};
};
using many_complex = compile<complex_systems, mesh<axis<"x", 2>>, input<std::complex<double>, shape<6, 5, 5>, split<"x", _, _>>,
                             input<std::complex<double>, shape<6, 5, 2>, split<"x", _, _>>>;
static_assert(many_complex::traffic.bytes == 0);

}  // namespace

TEST_CASE("complex matrices: compiled on threads, as planned at run time, also by vmap") {
  using namespace complex_matrices;
  reference::random_numbers random(2);
  auto a = drawn<double>(150, random);
  const auto b = drawn<double>(60, random);
  for (std::size_t m = 0; m < 6; ++m)
    for (std::size_t i = 0; i < 5; ++i) a[m * 25 + i * 6] = 20.0 + a[m * 25 + i * 6].real();
  array<number> x({6, 5, 5}), y({6, 5, 2});
  std::copy(a.begin(), a.end(), x.begin());
  std::copy(b.begin(), b.end(), y.begin());
  const auto compiled = run<many_complex>(threads{}, x, y);
  const auto p = dynamic::compile(complex_systems, dynamic::mesh({{"x", 1}}), dynamic::input<number>({6, 5, 5}),
                                  dynamic::input<number>({6, 5, 2}));
  const auto alone = p.run(simulated{}, pointers(a, b));
  const auto mapped = dynamic::compile([](value s, value t) { return vmap(complex_systems)(s, t); }, dynamic::mesh({{"x", 2}}),
                                       dynamic::input<number>({6, 5, 5}, {"x", "", ""}), dynamic::input<number>({6, 5, 2}))
                          .run(simulated{}, pointers(a, b));
  for (std::size_t k = 0; k < 4; ++k) CHECK(mapped[k].bytes == alone[k].bytes);
  const auto same = [](const auto& got, const dynamic::any_array& want, auto zero) {
    for (std::int64_t i = 0; i < got.size(); ++i)
      CHECK(std::abs(got.data()[i] - want.template data<decltype(zero)>()[i]) <= 1e-12 * (1 + std::abs(got.data()[i])));
  };
  same(std::get<0>(compiled), alone[0], number{});
  same(std::get<1>(compiled), alone[1], double{});
  same(std::get<3>(compiled), alone[3], number{});
}

TEST_CASE("complex matrices: equal and no eigenvalues, singular and indefinite matrices, flops") {
  using namespace complex_matrices;
  const dynamic::mesh one({{"x", 1}});
  constexpr std::size_t n = 6;
  // 0: a multiple of the identity; 1: of rank one; 2: a Hermitian permutation with phases; 3: with a NaN; 4: zeros.
  std::vector<number> a(5 * n * n, 0.0);
  const auto at = [&](std::size_t m, std::size_t i, std::size_t j) -> number& { return a[(m * n + i) * n + j]; };
  for (std::size_t i = 0; i < n; ++i) {
    at(0, i, i) = 3;
    for (std::size_t j = 0; j < n; ++j) at(1, i, j) = std::polar(1.0, static_cast<double>(i) - static_cast<double>(j));
    at(2, i, n - 1 - i) = i < n / 2 ? number(0, 1) : number(0, -1);
    at(3, i, i) = 1;
  }
  at(3, 2, 4) = number(0, std::numeric_limits<double>::quiet_NaN());
  const auto p = dynamic::compile(
      [](value x) {
        const auto [w, v] = eigh(x);
        return std::tuple{w, v, det(x), slogdet(x).second, cholesky(x), solve(x, x)};
      },
      one, dynamic::input<number>({5, n, n}));
  const auto r = p.run(simulated{}, pointers(a));
  const double wanted[3][n] = {{3, 3, 3, 3, 3, 3}, {0, 0, 0, 0, 0, 6}, {-1, -1, -1, 1, 1, 1}};
  for (std::size_t m = 0; m < 3; ++m) {
    const matrix h(n, n, a.data() + m * n * n), v(n, n, r[1].data<number>() + m * n * n);
    matrix scaled = v, identity(n, n);
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(std::fabs(r[0].data<double>()[m * n + i] - wanted[m][i]) < 1e-14);
      identity(static_cast<int64_t>(i), static_cast<int64_t>(i)) = 1;
      for (std::size_t j = 0; j < n; ++j) scaled(static_cast<int64_t>(i), static_cast<int64_t>(j)) *= wanted[m][j];
    }
    CHECK((h * v).far_from(scaled) < 1e-13);
    CHECK((v.adjoint() * v).far_from(identity) < 1e-13);
  }
  CHECK(std::isnan(r[0].data<double>()[3 * n]));
  CHECK(r[2].data<number>()[0] == number(729));
  CHECK(std::abs(r[2].data<number>()[2] + 1.0) < 1e-14);  // three pairs of values 1 and -1
  CHECK((r[2].data<number>()[4] == number(0) && r[3].data<double>()[4] == -INFINITY));
  CHECK(r[4].data<number>()[0] == number(std::sqrt(3.0)));
  CHECK(std::isnan(r[4].data<number>()[2 * n * n].real()));  // it is indefinite
  CHECK(r[5].data<number>()[0] == number(1));
  CHECK(std::isnan(r[5].data<number>()[4 * n * n].real()));

  // A complex product is four real products, and four sums of this kind.
  const auto flops = [&](auto f, const dynamic::input_spec& in) { return dynamic::compile(f, one, in).flops_per_device(); };
  const auto by = [](value x) { return std::tuple{lu(x).first, det(x)}; };
  CHECK(flops(by, dynamic::input<number>({4, 30, 30})) == 4 * flops(by, dynamic::input<double>({4, 30, 30})));
}
