// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Tridiagonal systems satisfy their equations, whole and in parts; gradients equal finite differences; and all devices
// compute the result of one device.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/linalg/tridiagonal.hpp>
#include <gspmd/transform/vmap.hpp>

#include "support/error_of.hpp"
#include "support/random_program.hpp"

namespace tridiagonal {

using namespace gspmd;
using std::int64_t;

/// The diagonals and b of some lines, diagonally dominant. Unused elements are NaN.
template <class T>
struct systems {
  int64_t lines, n;
  std::array<std::vector<T>, 4> all;

  systems(int64_t line_count, int64_t length, reference::random_numbers& random) : lines(line_count), n(length) {
    for (auto& v : all)
      for (int64_t i = 0; i < lines * n; ++i) v.push_back(static_cast<T>(random.between(-1000, 1000) / 1000.0));
    for (auto& d : all[1]) d += d > 0 ? T(2.1) : T(-2.1);
    for (int64_t line = 0; line < lines; ++line) {
      all[0][static_cast<std::size_t>(line * n)] = std::numeric_limits<T>::quiet_NaN();
      all[2][static_cast<std::size_t>(line * n + n - 1)] = std::numeric_limits<T>::quiet_NaN();
    }
  }
  /// Returns the error of x in the equations.
  [[nodiscard]] double residual(const T* x) const {
    double worst = 0;
    for (int64_t e = 0; e < lines * n; ++e) {
      const auto at = [&](std::size_t k) { return static_cast<double>(all[k][static_cast<std::size_t>(e)]); };
      double sum = at(1) * static_cast<double>(x[e]);
      if (e % n > 0) sum += at(0) * static_cast<double>(x[e - 1]);
      if (e % n < n - 1) sum += at(2) * static_cast<double>(x[e + 1]);
      const double wrong = std::fabs(sum - at(3));
      if (!(wrong <= worst)) worst = wrong;
    }
    return worst;
  }
  [[nodiscard]] std::vector<const void*> pointers() const { return {all[0].data(), all[1].data(), all[2].data(), all[3].data()}; }
};

constexpr auto in_parts(int64_t parts) {
  return [parts](value l, value d, value u, value b) { return tridiagonal_solve(l, d, u, b, {.parts = parts}); };
}
template <class T>
double mistake(const dynamic::mesh& m, const std::vector<int64_t>& shape, const std::vector<std::string>& split, int64_t parts,
               bool is_replicated, reference::random_numbers& random) {
  int64_t lines = 1;
  for (std::size_t d = 0; d + 1 < shape.size(); ++d) lines *= shape[d];
  const systems<T> s(lines, shape.back(), random);
  const auto in = dynamic::input<T>(shape, split);
  const auto p = dynamic::compile(
      [&](value l, value d, value u, value b) {
        const value x = in_parts(parts)(l, d, u, b);
        return is_replicated ? allow_replication(x) : x;
      },
      m, in, in, in, in);
  const auto r = p.run(simulated{}, s.pointers());
  CHECK(r[0].shape == shape);
  return s.residual(r[0].template data<T>());
}

}  // namespace tridiagonal

TEST_CASE("tridiagonal: random systems on random meshes, whole and in parts, along split dims, uneven, of few unknowns") {
  using namespace tridiagonal;
  const std::vector<std::array<int64_t, 2>> meshes = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 2}, {1, 5}};
  reference::random_numbers random(2);
  for (int round = 0; round < 150; ++round) {
    std::vector<int64_t> shape;
    for (int d = random.between(0, 2); d > 0; --d) shape.push_back(random.between(1, 11));
    shape.push_back(random.between(1, 40));
    const auto& sizes = random.one_of(meshes);
    const dynamic::mesh m({{"x", sizes[0]}, {"y", sizes[1]}});
    std::vector<std::string> split(shape.size());
    const auto parts = random.chance(50) || shape.back() < 4 ? 1 : random.between(2, static_cast<int>(shape.back() / 2));
    const int last = static_cast<int>(shape.size()) - (parts > 1 ? 1 : 2);
    for (const char* axis : {"x", "y"}) {
      if (last < 0 || random.chance(30)) continue;
      auto& names = split[static_cast<std::size_t>(random.between(0, last))];
      if (!names.empty()) names += ',';
      names += axis;
    }
    CAPTURE(round);
    CAPTURE(parts);
    CAPTURE(shape.size());
    CAPTURE(shape.back());
    try {
      if (random.chance(70)) CHECK(mistake<double>(m, shape, split, parts, true, random) < 1e-14);
      else CHECK(mistake<float>(m, shape, split, parts, true, random) < 1e-5);
    } catch (const error& e) {
      FAIL_CHECK(e.what());
    }
  }
}

TEST_CASE("tridiagonal: lines in groups and by themselves, long ones") {
  using namespace tridiagonal;
  reference::random_numbers random(4);
  const dynamic::mesh one({{"x", 1}});
  for (const int64_t lines : {1, 7, 8, 9, 16, 25}) CHECK(mistake<double>(one, {lines, 33}, {"", ""}, 1, false, random) < 1e-14);
  CHECK(mistake<double>(one, {3, 10000}, {"", ""}, 1, false, random) < 1e-14);
  CHECK(mistake<double>(dynamic::mesh({{"x", 4}}), {10000}, {"x"}, 4, false, random) < 1e-14);
}

TEST_CASE("tridiagonal: what is sent") {
  using namespace tridiagonal;
  const dynamic::mesh m({{"x", 4}});
  const auto planned = [&](std::vector<std::int64_t> shape, std::vector<std::string> split, std::int64_t parts) {
    const auto in = dynamic::input<double>(std::move(shape), std::move(split));
    return dynamic::compile(in_parts(parts), m, in, in, in, in);
  };
  CHECK(planned({8, 100}, {"x", ""}, 1).traffic().bytes == 0);
  // For one line, each device gathers four numbers of each of the three other parts. Three numbers are sent to the
  // device before, one to the next.
  const auto line = planned({64}, {"x"}, 4);
  CHECK(line.traffic().in(collective_kind::all_gather).bytes == 4 * 3 * 8);
  CHECK(line.traffic().bytes <= 4 * 3 * 8 + 4 * 8);
  // For many lines, each device solves the joint systems of a quarter of the lines.
  const auto lines = planned({16, 64}, {"", "x"}, 4);
  CHECK(lines.traffic().in(collective_kind::all_gather).bytes == 0);
  CHECK(lines.traffic().bytes <= (4 + 2) * 3 * 4 * 8 + 3 * 16 * 8);
}

namespace {

using namespace gspmd;
constexpr auto implicit = [](auto u) {
  const value off = u * 0.0 - 0.25;
  return tridiagonal_solve(off, 1.5 - 0.0 * u, off, u, {.parts = 2});
};
using step = compile<implicit, mesh<axis<"x", 2>>, input<double, shape<50>, split<"x">>>;

}  // namespace

TEST_CASE("tridiagonal: compiled on threads; with vmap") {
  array<double> u({50});
  for (std::int64_t i = 0; i < 50; ++i) u[i] = static_cast<double>(i * 7 % 11);
  const array<double> x = run<step>(threads{}, u);
  for (std::int64_t i = 0; i < 50; ++i)
    CHECK(1.5 * x[i] - 0.25 * ((i > 0 ? x[i - 1] : 0) + (i < 49 ? x[i + 1] : 0)) == doctest::Approx(u[i]));

  reference::random_numbers random(9);
  const tridiagonal::systems<double> s(6, 12, random);
  const auto in = dynamic::input<double>({6, 12}, {"x", ""});
  for (const std::int64_t parts : {1, 3}) {
    const auto mapped =
        dynamic::compile([parts](value l, value d, value w, value b) { return vmap(tridiagonal::in_parts(parts))(l, d, w, b); },
                         dynamic::mesh({{"x", 2}}), in, in, in, in);
    CHECK(s.residual(mapped.run(simulated{}, s.pointers())[0].data<double>()) < 1e-14);
  }
}

TEST_CASE("tridiagonal: gradients are those of differences, whole and in parts") {
  reference::random_numbers random(6);
  tridiagonal::systems<double> s(2, 7, random);
  for (std::size_t line = 0; line < 2; ++line) s.all[0][line * 7] = s.all[2][line * 7 + 6] = 0.5;  // their gradient is 0
  const auto in = dynamic::input<double>({2, 7}), split = dynamic::input<double>({2, 7}, {"", "x"});
  const auto loss = [](value l, value d, value u, value b, std::int64_t parts) {
    const value x = tridiagonal_solve(l, d, u, b, {.parts = parts});
    return sum(x * x * (1.0 + iota<double>(x, {2, 7}, 1)));
  };
  const auto f = dynamic::compile([&](value l, value d, value u, value b) { return loss(l, d, u, b, 1); },
                                  dynamic::mesh({{"x", 1}}), in, in, in, in);
  for (const std::int64_t parts : {1, 2, 3}) {
    const auto& where = parts == 1 ? in : split;
    const auto p = dynamic::compile(
        [&](value l, value d, value u, value b) {
          return grad(loss(l, d, u, b, parts), std::tuple{l, d, u, b});
        },
        dynamic::mesh({{"x", parts}}), where, where, where, where);
    const auto g = p.run(simulated{}, s.pointers());
    for (std::size_t k = 0; k < 4; ++k)
      for (std::size_t i = 0; i < 14; ++i) {
        const double h = 1e-6, kept = s.all[k][i];
        s.all[k][i] = kept + h;
        const double high = f.run(serial{}, s.pointers())[0].data<double>()[0];
        s.all[k][i] = kept - h;
        const double low = f.run(serial{}, s.pointers())[0].data<double>()[0];
        s.all[k][i] = kept;
        CAPTURE(parts);
        CAPTURE(k);
        CAPTURE(i);
        CHECK(g[k].data<double>()[i] == doctest::Approx((high - low) / (2 * h)).epsilon(1e-6));
      }
  }
}

TEST_CASE("tridiagonal: complex systems and their gradients are those of the real ones that they are, whole and in parts") {
  using complex = std::complex<double>;
  constexpr std::size_t lines = 9, n = 11;
  reference::random_numbers random(8);
  const auto number = [&] { return complex(random.between(-1000, 1000), random.between(-1000, 1000)) / 1000.0; };
  std::array<std::vector<complex>, 5> all;  // the diagonals, b, and the gradient with respect to x
  for (auto& v : all)
    for (std::size_t i = 0; i < lines * n; ++i) v.push_back(number());
  for (complex& d : all[1]) d += complex(3, -2);
  const auto narrowed = [&] {
    std::array<std::vector<std::complex<float>>, 5> f;
    for (std::size_t k = 0; k < 5; ++k)
      for (const complex z : all[k]) f[k].emplace_back(static_cast<float>(z.real()), static_cast<float>(z.imag()));
    return f;
  }();
  /// Solves the dense matrix, or its conjugate transpose, by elimination with pivots.
  const auto dense = [&](std::size_t line, bool is_adjoint, const std::vector<complex>& side) {
    const auto at = [&](std::size_t i, std::size_t j) {
      const std::size_t e = line * n + i;
      return i == j ? all[1][e] : j + 1 == i ? all[0][e] : j == i + 1 ? all[2][e] : complex();
    };
    std::vector<std::vector<complex>> a(n, std::vector<complex>(n + 1));
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) a[i][j] = is_adjoint ? std::conj(at(j, i)) : at(i, j);
      a[i][n] = side[line * n + i];
    }
    for (std::size_t k = 0; k < n; ++k) {
      std::size_t best = k;
      for (std::size_t i = k; i < n; ++i)
        if (std::abs(a[i][k]) > std::abs(a[best][k])) best = i;
      std::swap(a[k], a[best]);
      for (std::size_t i = 0; i < n; ++i) {
        if (i == k) continue;
        const complex factor = a[i][k] / a[k][k];
        for (std::size_t j = k; j <= n; ++j) a[i][j] -= factor * a[k][j];
      }
    }
    std::vector<complex> x;
    for (std::size_t i = 0; i < n; ++i) x.push_back(a[i][n] / a[i][i]);
    return x;
  };
  const auto check = [&]<class T>(const auto& given, std::int64_t parts, double tolerance) {
    const auto in = dynamic::input<T>({lines, n}, {parts == 1 ? "x" : "", parts == 1 ? "" : "x"});
    const auto p = dynamic::compile(
        [&](value l, value d, value u, value b, value dx) {
          const value x = tridiagonal_solve(l, d, u, b, {.parts = parts});
          // dL/dx of sum(re x re w + im x im w) is w.
          const value loss = sum(real(x) * real(dx) + imag(x) * imag(dx));
          return std::tuple_cat(std::tuple{x}, grad(loss, std::tuple{l, d, u, b}));
        },
        dynamic::mesh({{"x", parts == 1 ? 2 : parts}}), in, in, in, in, in);
    const auto r = p.run(simulated{}, {given[0].data(), given[1].data(), given[2].data(), given[3].data(), given[4].data()});
    for (std::size_t line = 0; line < lines; ++line) {
      const auto x = dense(line, false, all[3]), y = dense(line, true, all[4]);
      for (std::size_t i = 0; i < n; ++i) {
        const complex expected[] = {x[i], i > 0 ? -y[i] * std::conj(x[i - 1]) : complex(), -y[i] * std::conj(x[i]),
                                    i + 1 < n ? -y[i] * std::conj(x[i + 1]) : complex(), y[i]};
        for (std::size_t k = 0; k < 5; ++k) {
          CAPTURE(parts);
          CAPTURE(k);
          CAPTURE(i);
          const T got = r[k].template data<T>()[line * n + i];
          CHECK(std::abs(complex(got.real(), got.imag()) - expected[k]) < tolerance);
        }
      }
    }
  };
  for (const std::int64_t parts : {1, 2, 3}) {
    check.operator()<c128>(all, parts, 1e-12);
    check.operator()<c64>(narrowed, parts, 1e-4);
  }
}

TEST_CASE("tridiagonal: mistakes have words") {
  using namespace tridiagonal;
  const auto refusal = [&](const dynamic::input_spec& l, const dynamic::input_spec& b, std::int64_t parts) {
    return caught::refusal([&] { static_cast<void>(dynamic::compile(in_parts(parts), dynamic::mesh({{"x", 2}}), l, b, b, b)); });
  };
  const auto f64 = [](std::vector<std::int64_t> s) { return dynamic::input<double>(s); };
  const auto says = [](const std::string& got, const char* words) {
    INFO(got);
    CHECK(got.find(words) != std::string::npos);
  };
  says(refusal(dynamic::input<int>({4}), dynamic::input<int>({4}), 1),
       "is given s32; it takes float, double and complex numbers");
  says(refusal(f64({5}), f64({4}), 1), "b is f64[4] and the lower diagonal f64[5]; they are of one type and shape");
  says(refusal(dynamic::input<float>({4}), f64({4}), 1), "b is f64[4] and the lower diagonal f32[4]");
  says(refusal(f64({1, 1, 1, 1, 1, 1, 1, 1, 4}), f64({1, 1, 1, 1, 1, 1, 1, 1, 4}), 1), "it takes 1 to 8 dims");
  says(refusal(f64({7}), f64({7}), 4),
       "cuts systems of 7 unknowns into 4 parts; there is at least one, and each has two unknowns");
  says(refusal(f64({7}), f64({7}), 0), "into 0 parts");
  const auto split = dynamic::input<double>({8}, {"x"});
  says(refusal(split, split, 1), "takes whole systems: it would gather");
  says(refusal(split, split, 1), "or let the number of parts be the number of devices");
}
