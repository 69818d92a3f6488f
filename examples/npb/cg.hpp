// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/gspmd.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "benchmark.hpp"
#include "random.hpp"

/// CG, conjugate gradients: the smallest eigenvalue of a sparse matrix by the inverse power method, with 25 trips of conjugate
/// gradients in each step of it (NPB report RNR-94-007, section 2.2.3).
namespace npb::cg {

using gspmd::value;

/// Verification values of NPB 3.4, cg.f90.
struct problem {
  std::int64_t n;
  int nonzeros;
  double shift, zeta;
};
inline problem of_class(char name) {
  if (name == 'S') return {1400, 7, 10, 8.5971775078648};
  if (name == 'W') return {7000, 8, 12, 10.362595087124};
  return {14000, 11, 20, 17.130235054029};
}
inline constexpr std::int64_t steps = 15, trips = 25;

/// The rows of a matrix, as wide as the fullest of them; what is left over is zeros of column 0.
struct padded_rows {
  std::int64_t width = 0, stored = 0;
  std::vector<std::int32_t> columns;
  std::vector<double> values;
};

/// The matrix: the sum of w_i x_i x_i^T, w_i = 0.1^(i/n), of sparse random vectors x_i whose element i is 1/2, plus (0.1 - shift) times
/// the identity. A vector's element is a number and its place another one, taken again where the place is outside or taken.
inline padded_rows matrix(const problem& p) {
  sequence random(314'159'265);
  random.next();
  std::int64_t places = 1;
  while (places < p.n) places *= 2;
  std::vector<std::vector<std::pair<std::int32_t, double>>> rows(static_cast<std::size_t>(p.n));
  double weight = 1;
  const double ratio = std::pow(0.1, 1 / static_cast<double>(p.n));
  for (std::int32_t i = 0; i < p.n; ++i, weight *= ratio) {
    std::vector<std::pair<std::int32_t, double>> x;
    const auto at = [&x](std::int32_t place) {
      return std::find_if(x.begin(), x.end(), [place](const auto& e) { return e.first == place; });
    };
    while (static_cast<int>(x.size()) < p.nonzeros) {
      const double element = random.next();
      const auto place = static_cast<std::int32_t>(random.next() * static_cast<double>(places));
      if (place < p.n && at(place) == x.end()) x.emplace_back(place, element);
    }
    if (const auto own = at(i); own != x.end()) own->second = 0.5;
    else x.emplace_back(i, 0.5);
    for (const auto& [row, a] : x)
      for (const auto& [column, b] : x) rows[static_cast<std::size_t>(row)].emplace_back(column, weight * a * b);
    rows[static_cast<std::size_t>(i)].emplace_back(i, 0.1 - p.shift);
  }
  padded_rows m;
  for (auto& row : rows) {  // terms of one element become one
    std::sort(row.begin(), row.end());
    std::size_t kept = 0;
    for (const auto& e : row)
      if (kept > 0 && row[kept - 1].first == e.first) row[kept - 1].second += e.second;
      else row[kept++] = e;
    row.resize(kept);
    m.width = std::max(m.width, static_cast<std::int64_t>(kept));
    m.stored += static_cast<std::int64_t>(kept);
  }
  m.columns.resize(static_cast<std::size_t>(p.n * m.width));
  m.values.resize(m.columns.size());
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t k = 0; k < rows[r].size(); ++k) {
      m.columns[r * static_cast<std::size_t>(m.width) + k] = rows[r][k].first;
      m.values[r * static_cast<std::size_t>(m.width) + k] = rows[r][k].second;
    }
  return m;
}

/// Rows are split, and with them all vectors; the one that the matrix is multiplied by is brought to all devices, as a table of which
/// each looks up what its rows name.
inline auto program(const problem& p) {
  return [p](value columns, value values) {
    const auto dot = [](value x, value y) { return sum(x * y); };
    const auto times_a = [&](value x) { return sum(values * take(reshard(x, gspmd::split<gspmd::_>{}), columns, 0), 1); };
    const auto solve = [&](value x) {
      return std::get<0>(gspmd::fori_loop(
          trips,
          [&](value, value z, value r, value d, value rho) {
            const value q = times_a(d), alpha = rho / dot(d, q), left = r - alpha * q, next = dot(left, left);
            return std::tuple(z + alpha * d, left, left + next / rho * d, next);
          },
          zeros_like(x), x, x, dot(x, x)));
    };
    const value ones = reshard(gspmd::constant<double>(values, {p.n}, 1.0), gspmd::split<"devices">{});
    return std::get<1>(gspmd::fori_loop(
        steps,
        [&](value, value x, value) {
          const value z = solve(x);
          return std::tuple(z / sqrt(dot(z, z)), p.shift + 1.0 / dot(x, z));
        },
        ones, gspmd::constant<double>(values, {}, 0.0)));
  };
}

inline outcome run(char name, const machine& m) {
  const auto p = of_class(name);
  const auto a = matrix(p);
  const auto step =
      gspmd::dynamic::compile(program(p), m.mesh(), gspmd::dynamic::in<std::int32_t>({p.n, a.width}, {"devices", ""}),
                              gspmd::dynamic::in<double>({p.n, a.width}, {"devices", ""}));
  std::vector<any_array> made;
  outcome o = planned(step);
  o.seconds = seconds_of([&] { made = m.run(step, {a.columns.data(), a.values.data()}); });
  const double in_row = p.nonzeros * (p.nonzeros + 1);
  o.operations = 2.0 * steps * static_cast<double>(p.n) * (3 + in_row + trips * (5 + in_row) + 3);
  o.checks = {{"zeta", *made[0].data<double>(), p.zeta, 1e-10}};
  return o;
}

}  // namespace npb::cg
