// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/gspmd.hpp>
#include <gspmd/sparse.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "benchmark.hpp"
#include "random.hpp"

/// CG, conjugate gradients: the smallest eigenvalue of a sparse matrix by the inverse power method. Each step has 25
/// iterations of conjugate gradients (NPB report RNR-94-007, section 2.2.3).
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

struct compressed_rows {
  std::vector<std::int64_t> row_start{0};
  std::vector<std::int32_t> columns;
  std::vector<double> values;
};

/// Returns the matrix: the sum of w_i x_i x_i^T, w_i = 0.1^(i/n), for sparse random vectors x_i with element i = 1/2,
/// plus (0.1 - shift) times the identity. A random number gives a vector's element, and another its position. If the
/// position is invalid or in use, it is drawn again.
inline compressed_rows matrix(const problem& p) {
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
  compressed_rows m;
  for (auto& row : rows) {  // add the terms of each element
    std::sort(row.begin(), row.end());
    const auto begin = m.columns.size();
    for (const auto& [column, term] : row)
      if (m.columns.size() > begin && m.columns.back() == column) m.values.back() += term;
      else {
        m.columns.push_back(column);
        m.values.push_back(term);
      }
    m.row_start.push_back(static_cast<std::int64_t>(m.columns.size()));
  }
  return m;
}

/// Rows, and with them all vectors, are split. Each product exchanges the elements that a device reads from other
/// devices.
inline auto program(const problem& p) {
  return [p](auto a, value ones) {
    const auto dot = [](value x, value y) { return sum(x * y); };
    const auto solve = [&](value x) {
      return std::get<0>(gspmd::fori_loop(
          trips,
          [&](value, value z, value r, value d, value rho) {
            const value q = multiply(a, d), alpha = rho / dot(d, q), left = r - alpha * q, next = dot(left, left);
            return std::tuple(z + alpha * d, left, left + next / rho * d, next);
          },
          zeros_like(x), x, x, dot(x, x)));
    };
    return std::get<1>(gspmd::fori_loop(
        steps,
        [&](value, value x, value) {
          const value z = solve(x);
          return std::tuple(z / sqrt(dot(z, z)), p.shift + 1.0 / dot(x, z));
        },
        ones, gspmd::constant<double>(ones, {}, 0.0)));
  };
}

inline outcome run(char name, const machine& m) {
  const auto p = of_class(name);
  const auto rows = matrix(p);
  const gspmd::sparse_matrix<double> a(p.n, p.n, rows.row_start, rows.columns, rows.values, m.devices);
  const auto step =
      gspmd::dynamic::compile(program(p), m.mesh(), a.input<"devices">(), gspmd::dynamic::input<double>({p.n}, {"devices"}));
  const std::vector<double> ones(static_cast<std::size_t>(p.n), 1.0);
  std::vector<const void*> inputs;
  std::apply([&](const auto&... part) { (inputs.push_back(part.data()), ...); }, a.parts());
  inputs.push_back(ones.data());
  std::vector<any_array> made;
  outcome o = planned(step);
  const auto run_step = m.prepare(step);
  o.seconds = seconds_of([&] { made = run_step(inputs); });
  const double in_row = p.nonzeros * (p.nonzeros + 1);
  o.operations = 2.0 * steps * static_cast<double>(p.n) * (3 + in_row + trips * (5 + in_row) + 3);
  o.checks = {{"zeta", *made[0].data<double>(), p.zeta, 1e-10}};
  return o;
}

}  // namespace npb::cg
