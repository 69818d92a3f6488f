// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gspmd/detail/ir/axis_state.hpp"

/// Finds the valid classes of an operator for operands in given states along one axis, by exact integers. Each device
/// computes f on its own data, forward and backward, without communication. Then the results are checked.
namespace typed_law {

using gspmd::axis_state;
using gspmd::state;

/// A tensor of rank up to 2. A vector has one row and `rank` 1.
struct matrix {
  int rows = 0, columns = 0, rank = 2;
  std::vector<std::int64_t> of{};

  friend bool operator==(const matrix&, const matrix&) = default;
  [[nodiscard]] bool is_like(const matrix& o) const { return rows == o.rows && columns == o.columns && rank == o.rank; }
  [[nodiscard]] std::int64_t& at(int r, int c) { return of[static_cast<std::size_t>(r * columns + c)]; }
  [[nodiscard]] std::int64_t at(int r, int c) const { return of[static_cast<std::size_t>(r * columns + c)]; }
};
inline matrix zeros(int rows, int columns, int rank = 2) {
  return {rows, columns, rank, std::vector<std::int64_t>(static_cast<std::size_t>(rows * columns), 0)};
}
inline matrix plus(matrix a, const matrix& b) {
  for (std::size_t k = 0; k < a.of.size(); ++k) a.of[k] += b.of[k];
  return a;
}
inline matrix some(int rows, int columns, int rank, std::mt19937& random) {
  matrix m = zeros(rows, columns, rank);
  for (auto& e : m.of) e = static_cast<std::int64_t>(random() % 9) - 4;
  return m;
}
inline matrix chunk(const matrix& m, int dim, int k, int n) {
  const bool by_rows = m.rank == 2 && dim == 0;
  const int rows = by_rows ? m.rows / n : m.rows, columns = by_rows ? m.columns : m.columns / n;
  matrix part = zeros(rows, columns, m.rank);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) part.at(r, c) = m.at(r + (by_rows ? k * rows : 0), c + (by_rows ? 0 : k * columns));
  return part;
}

/// An operator with its derivative. Neither is called if `fits` returns false.
struct law_operator {
  std::function<bool(const std::vector<matrix>&)> fits;
  std::function<matrix(const std::vector<matrix>&)> apply;
  std::function<std::vector<matrix>(const std::vector<matrix>&, const matrix&)> pull;
};

/// The data of the devices for a value in a state, or for its gradient in the dual state.
using on_devices = std::vector<matrix>;
inline on_devices held(const matrix& whole, const axis_state& is, int n, std::mt19937& random) {
  on_devices all;
  matrix rest = whole;
  for (int k = 0; k < n; ++k) {
    if (is.is == state::shard) all.push_back(chunk(whole, is.dim, k, n));
    else if (is.is != state::partial) all.push_back(whole);
    else if (k + 1 == n) all.push_back(rest);
    else {
      matrix term = some(whole.rows, whole.columns, whole.rank, random);
      for (std::size_t e = 0; e < term.of.size(); ++e) rest.of[e] -= term.of[e];
      all.push_back(term);
    }
  }
  return all;
}
inline bool stands_for(const on_devices& all, const axis_state& is, const matrix& whole, int n) {
  matrix sum = zeros(whole.rows, whole.columns, whole.rank);
  for (int k = 0; k < n; ++k) {
    const matrix& m = all[static_cast<std::size_t>(k)];
    if (is.is == state::shard) {
      if (!(m == chunk(whole, is.dim, k, n))) return false;
    } else if (!m.is_like(whole)) {
      return false;
    } else if (is.is == state::partial) {
      sum = plus(sum, m);
    } else if (!(m == whole)) {
      return false;
    }
  }
  return is.is != state::partial || sum == whole;
}

/// Returns true if the result is in state `to` for any numbers, and each operand's gradient in the dual of the
/// operand's state.
inline bool is_sound(const law_operator& f, const std::vector<axis_state>& in, const axis_state& to, int n,
                     std::mt19937& random) {
  for (int trial = 0; trial < 4; ++trial) {
    std::vector<matrix> x;
    std::vector<on_devices> local;
    for (const auto& is : in) {
      x.push_back(some(6, 6, 2, random));
      local.push_back(held(x.back(), is, n, random));
    }
    const matrix y = f.apply(x), g = some(y.rows, y.columns, y.rank, random);
    if (to.is == state::shard && to.dim >= y.rank) return false;
    const auto gx = f.pull(x, g);
    const on_devices gs = held(g, gspmd::detail::dual(to), n, random);
    on_devices ys;
    std::vector<on_devices> back(in.size());
    for (int k = 0; k < n; ++k) {
      std::vector<matrix> mine;
      for (const auto& all : local) mine.push_back(all[static_cast<std::size_t>(k)]);
      if (!f.fits(mine)) return false;
      ys.push_back(f.apply(mine));
      if (!ys.back().is_like(gs[static_cast<std::size_t>(k)])) return false;
      const auto gradients = f.pull(mine, gs[static_cast<std::size_t>(k)]);
      for (std::size_t o = 0; o < in.size(); ++o) back[o].push_back(gradients[o]);
    }
    if (!stands_for(ys, to, y, n)) return false;
    for (std::size_t o = 0; o < in.size(); ++o)
      if (in[o].is != state::constant && (to.is == state::constant || !stands_for(back[o], gspmd::detail::dual(in[o]), gx[o], n)))
        return false;
  }
  return true;
}

inline const std::vector<axis_state>& all_states() {
  static const std::vector<axis_state> all{{state::constant},          {state::replica},           {state::invariant},
                                           gspmd::detail::shard_of(0), gspmd::detail::shard_of(1), {state::partial}};
  return all;
}

/// Returns true if some state of the result is sound. Constants may be cut if that helps.
inline bool is_possible(const law_operator& f, const std::vector<axis_state>& in, int n, std::mt19937& random) {
  for (std::size_t k = 0; k < in.size(); ++k) {
    if (in[k].is != state::constant) continue;
    for (int dim = 0; dim < 2; ++dim) {  // a constant takes the form of the other operands, since its gradient has no users
      bool any = false;
      for (const auto& o : in) any = any || o.is == state::shard;
      if (!any) break;
      std::vector<axis_state> cut = in;
      cut[k] = gspmd::detail::shard_of(dim);
      if (is_possible(f, cut, n, random)) return true;
    }
  }
  return std::any_of(all_states().begin(), all_states().end(),
                     [&](const axis_state& to) { return is_sound(f, in, to, n, random); });
}

// ---- operators ----

inline law_operator of_each(std::function<std::int64_t(std::int64_t)> f, std::function<std::int64_t(std::int64_t)> d) {
  const auto each = [](const matrix& x, auto&& g) {
    matrix y = x;
    for (std::size_t k = 0; k < y.of.size(); ++k) y.of[k] = g(k);
    return y;
  };
  return {[](const auto&) { return true; },
          [=](const auto& x) { return each(x[0], [&](std::size_t k) { return f(x[0].of[k]); }); },
          [=](const auto& x, const matrix& g) {
            return std::vector{each(x[0], [&](std::size_t k) { return d(x[0].of[k]) * g.of[k]; })};
          }};
}
inline law_operator of_two(std::function<std::int64_t(std::int64_t, std::int64_t)> f,
                           std::function<std::int64_t(std::int64_t, std::int64_t)> first,
                           std::function<std::int64_t(std::int64_t, std::int64_t)> second) {
  const auto each = [](const std::vector<matrix>& x, auto&& g) {
    matrix y = x[0];
    for (std::size_t k = 0; k < y.of.size(); ++k) y.of[k] = g(x[0].of[k], x[1].of[k], k);
    return y;
  };
  return {[](const auto& x) { return x[0].is_like(x[1]); },
          [=](const auto& x) { return each(x, [&](auto a, auto b, auto) { return f(a, b); }); },
          [=](const auto& x, const matrix& g) {
            return std::vector{each(x, [&](auto a, auto b, auto k) { return first(a, b) * g.of[k]; }),
                               each(x, [&](auto a, auto b, auto k) { return second(a, b) * g.of[k]; })};
          }};
}
inline matrix transposed(const matrix& x) {
  matrix y = zeros(x.columns, x.rows);
  for (int r = 0; r < x.rows; ++r)
    for (int c = 0; c < x.columns; ++c) y.at(c, r) = x.at(r, c);
  return y;
}
inline matrix product_of(const matrix& a, const matrix& b) {
  matrix y = zeros(a.rows, b.columns);
  for (int r = 0; r < a.rows; ++r)
    for (int k = 0; k < a.columns; ++k)
      for (int c = 0; c < b.columns; ++c) y.at(r, c) += a.at(r, k) * b.at(k, c);
  return y;
}
inline law_operator transpose() {
  return {[](const auto&) { return true; }, [](const auto& x) { return transposed(x[0]); },
          [](const auto&, const matrix& g) { return std::vector{transposed(g)}; }};
}
inline law_operator product() {
  return {[](const auto& x) { return x[0].columns == x[1].rows; }, [](const auto& x) { return product_of(x[0], x[1]); },
          [](const auto& x, const matrix& g) {
            return std::vector{product_of(g, transposed(x[1])), product_of(transposed(x[0]), g)};
          }};
}
/// Returns the operator that sums the columns.
inline law_operator column_sum() {
  return {[](const auto&) { return true; },
          [](const auto& x) {
            matrix y = zeros(1, x[0].columns, 1);
            for (int r = 0; r < x[0].rows; ++r)
              for (int c = 0; c < x[0].columns; ++c) y.at(0, c) += x[0].at(r, c);
            return y;
          },
          [](const auto& x, const matrix& g) {
            matrix d = x[0];
            for (int r = 0; r < d.rows; ++r)
              for (int c = 0; c < d.columns; ++c) d.at(r, c) = g.at(0, c);
            return std::vector{d};
          }};
}

}  // namespace typed_law
