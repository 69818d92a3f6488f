// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/program/dtype.hpp>

/// Element types as users write them. For each type, a program with operators of every kind, and its expected results
/// by loops.
namespace own_numbers {

/// Residues modulo a prime. Sums and products are exact in any order.
struct residue {
  std::uint64_t value;
  static constexpr std::uint64_t modulus = 4294967291;

  friend constexpr residue operator+(residue a, residue b) { return {(a.value % modulus + b.value % modulus) % modulus}; }
  friend constexpr residue operator*(residue a, residue b) { return {(a.value % modulus) * (b.value % modulus) % modulus}; }
  friend constexpr residue operator-(residue a) { return {(modulus - a.value % modulus) % modulus}; }
  friend constexpr bool operator==(residue a, residue b) { return a.value == b.value; }
  constexpr explicit operator double() const { return static_cast<double>(value); }
};

/// A number and its derivative.
struct dual {
  double value, slope;

  friend constexpr dual operator+(const dual& a, const dual& b) { return {a.value + b.value, a.slope + b.slope}; }
  friend constexpr dual operator*(const dual& a, const dual& b) {
    return {a.value * b.value, a.value * b.slope + a.slope * b.value};
  }
  friend constexpr bool operator==(const dual& a, const dual& b) { return a.value == b.value && a.slope == b.slope; }
};

}  // namespace own_numbers

template <>
struct gspmd::element_type<own_numbers::residue> : gspmd::own_type<own_numbers::residue, 0> {};
template <>
struct gspmd::element_type<own_numbers::dual> : gspmd::own_type<own_numbers::dual, 2> {};

#include <gspmd/gspmd.hpp>

namespace own_numbers {

using namespace gspmd;
using std::int64_t;

/// x is [7, 5], w is [5, 6], rows is [4], updates is [4, 5].
constexpr auto all_operators = [](auto x, auto w, auto rows, auto updates) {
  const value y = einsum<"ab,bc->ac">(x, w);
  const value picked = take(x, rows, 0);
  return std::tuple{y,
                    einsum<"ab,bc->ca">(x, w),
                    sum(x, {0}),
                    sum(map([](residue a) { return a * a; }, x) + -x * x),
                    transpose(x, {1, 0}),
                    where(iota<std::int32_t>(x, {7, 5}, 0) > 2.0, x, -x),
                    pad(slice(x, {2, 1}, {7, 4}), {1, 0}, {0, 2}),
                    concatenate({x, flip(x, {0})}, 0),
                    shift(x, -2, along(0)),
                    picked,
                    scatter_add(x, rows, updates, 0),
                    cumsum(x, 0),
                    reshape(w, {5, 2, 3}),
                    cast<double>(x)};
};

/// A matrix of T, stored by rows.
template <class T>
struct matrix {
  int64_t rows, columns;
  std::vector<T> of;

  matrix(int64_t r, int64_t c) : rows(r), columns(c), of(static_cast<std::size_t>(r * c)) {}
  template <class F>
  matrix(int64_t r, int64_t c, F f) : matrix(r, c) {
    for (int64_t i = 0; i < r; ++i)
      for (int64_t j = 0; j < c; ++j) at(i, j) = f(i, j);
  }
  T& at(int64_t i, int64_t j) { return of[static_cast<std::size_t>(i * columns + j)]; }
  const T& at(int64_t i, int64_t j) const { return of[static_cast<std::size_t>(i * columns + j)]; }
};
template <class T>
matrix<T> product(const matrix<T>& a, const matrix<T>& b) {
  return {a.rows, b.columns, [&](int64_t i, int64_t j) {
            T total{};
            for (int64_t k = 0; k < a.columns; ++k) total = total + a.at(i, k) * b.at(k, j);
            return total;
          }};
}
template <class T>
matrix<T> turned(const matrix<T>& a) {
  return {a.columns, a.rows, [&](int64_t i, int64_t j) { return a.at(j, i); }};
}

struct residue_case {
  matrix<residue> x{7, 5,
                    [](int64_t i, int64_t j) { return residue{static_cast<std::uint64_t>(i * 1234567891 + j * 987654321)}; }};
  matrix<residue> w{5, 6,
                    [](int64_t i, int64_t j) { return residue{static_cast<std::uint64_t>(i * 3456789123 + j * 22222222)}; }};
  std::vector<std::int32_t> rows{6, 0, 3, 6};
  matrix<residue> updates{4, 5,
                          [](int64_t i, int64_t j) { return residue{static_cast<std::uint64_t>(i * 777 + j + 4294967000)}; }};

  residue_case() {
    for (auto* m : {&x, &w, &updates})
      for (auto& r : m->of) r = r + residue{};  // reduced
  }
  /// Returns the number of wrong elements in the results of all_operators.
  template <class Results>
  int wrong(const Results& got) const {
    int count = 0;
    const auto is = [&](const auto& result, const matrix<residue>& expected) {
      for (std::size_t k = 0; k < expected.of.size(); ++k) count += result.data()[k] == expected.of[k] ? 0 : 1;
    };
    const auto of = [](int64_t r, int64_t c, auto f) { return matrix<residue>(r, c, f); };
    const auto y = product(x, w);
    is(std::get<0>(got), y);
    is(std::get<1>(got), turned(y));
    is(std::get<2>(got), of(1, 5, [&](int64_t, int64_t j) {
         residue total{};
         for (int64_t i = 0; i < 7; ++i) total = total + x.at(i, j);
         return total;
       }));
    is(std::get<3>(got), of(1, 1, [](int64_t, int64_t) { return residue{}; }));
    is(std::get<4>(got), turned(x));
    is(std::get<5>(got), of(7, 5, [&](int64_t i, int64_t j) { return i > 2 ? x.at(i, j) : -x.at(i, j); }));
    is(std::get<6>(got), of(6, 5, [&](int64_t i, int64_t j) { return i == 0 || j > 2 ? residue{} : x.at(i + 1, j + 1); }));
    is(std::get<7>(got), of(14, 5, [&](int64_t i, int64_t j) { return x.at(i < 7 ? i : 13 - i, j); }));
    is(std::get<8>(got), of(7, 5, [&](int64_t i, int64_t j) { return i < 2 ? residue{} : x.at(i - 2, j); }));
    is(std::get<9>(got), of(4, 5, [&](int64_t i, int64_t j) { return x.at(rows[static_cast<std::size_t>(i)], j); }));
    is(std::get<10>(got), of(7, 5, [&](int64_t i, int64_t j) {
         residue total = x.at(i, j);
         for (int64_t k = 0; k < 4; ++k)
           if (rows[static_cast<std::size_t>(k)] == i) total = total + updates.at(k, j);
         return total;
       }));
    is(std::get<11>(got), of(7, 5, [&](int64_t i, int64_t j) {
         residue total{};
         for (int64_t k = 0; k <= i; ++k) total = total + x.at(k, j);
         return total;
       }));
    is(std::get<12>(got), w);
    for (std::size_t k = 0; k < 35; ++k) count += std::get<13>(got).data()[k] == static_cast<double>(x.of[k].value) ? 0 : 1;
    return count;
  }
};
template <class Mesh, class SplitX, class SplitW>
using residue_step = compile<all_operators, Mesh, input<residue, shape<7, 5>, SplitX>, input<residue, shape<5, 6>, SplitW>,
                             input<std::int32_t, shape<4>>, input<residue, shape<4, 5>>>;

/// x is [3, 7, 2], w is [7, 5].
constexpr auto dual_operators = [](auto x, auto w) {
  const value y = einsum<"abc,bd->dac">(x, w);
  return std::tuple{y, sum(x, {1}), transpose(x, {2, 0, 1}), einsum<"abc,abc->c">(x, x)};
};
template <class Mesh, class SplitX, class SplitW>
using dual_step = compile<dual_operators, Mesh, input<dual, shape<3, 7, 2>, SplitX>, input<dual, shape<7, 5>, SplitW>>;

/// Small integers, which are exact.
struct dual_case {
  matrix<dual> x{21, 2, [](int64_t i, int64_t j) {
                   return dual{static_cast<double>(i % 5 - j), static_cast<double>(j + i % 3)};
                 }};
  matrix<dual> w{7, 5, [](int64_t i, int64_t j) { return dual{static_cast<double>(i - j), static_cast<double>(i * j % 4)}; }};

  template <class Results>
  int wrong(const Results& got) const {
    int count = 0;
    const auto is = [&count](const dual& a, const dual& b) { count += a == b ? 0 : 1; };
    for (int64_t a = 0; a < 3; ++a)
      for (int64_t c = 0; c < 2; ++c) {
        dual total{};
        for (int64_t b = 0; b < 7; ++b) {
          total = total + x.at(a * 7 + b, c);
          is(std::get<2>(got).data()[(c * 3 + a) * 7 + b], x.at(a * 7 + b, c));
        }
        is(std::get<1>(got).data()[a * 2 + c], total);
        for (int64_t d = 0; d < 5; ++d) {
          dual y{};
          for (int64_t b = 0; b < 7; ++b) y = y + x.at(a * 7 + b, c) * w.at(b, d);
          is(std::get<0>(got).data()[(d * 3 + a) * 2 + c], y);
        }
      }
    for (int64_t c = 0; c < 2; ++c) {
      dual total{};
      for (int64_t i = 0; i < 21; ++i) total = total + x.at(i, c) * x.at(i, c);
      is(std::get<3>(got).data()[c], total);
    }
    return count;
  }
};

}  // namespace own_numbers
