// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "gspmd/ops/local_op.hpp"
#include "gspmd/ops/shape.hpp"

/// The operators of one device on its rows of a sparse matrix. Entries that read the device's own part of x come first, in the order of the
/// rows, then those that read what others sent, of the rows that `halo_rows` lists: each a row and where its entries begin; the last one ends them.
namespace gspmd::detail::sparse {

/// Calls `f(first entry, last entry, row)` for the rows of the own entries, then for those of the others.
template <class Starts, class F>
constexpr void for_each_row(const Starts& starts, F&& f) {
  const std::int32_t* const start = starts.data();
  for (std::int64_t r = 0; r + 1 < starts.extent(0); ++r) f(start[r], start[r + 1], r);
}
template <class HaloRows, class F>
constexpr void for_each_halo_row(const HaloRows& rows, F&& f) {
  for (std::int64_t i = 0; i + 1 < rows.extent(0); ++i)
    if (const std::int32_t first = rows(i, 1), last = rows(i + 1, 1); first < last) f(first, last, std::int64_t{rows(i, 0)});
}

/// Blocks of so many rows, unrolled; 0: of any number.
template <int Block, class Y, class V, class X>
constexpr void add_rows(std::int64_t first, std::int64_t last, std::int64_t row, const std::int32_t* column, const V& values,
                        const X& x, const Y& y, bool is_first) {
  using T = typename Y::element_type;
  const std::int64_t b = Block > 0 ? Block : y.extent(1);
  if constexpr (Block > 0) {
    T sum[static_cast<std::size_t>(Block)]{};
    for (std::int64_t k = first; k < last; ++k) {
      const T* const from = x.data() + column[k] * x.stride(0);
      const T* const value = values.data() + k * values.stride(0);
      for (int i = 0; i < Block; ++i)
        for (int j = 0; j < Block; ++j) sum[i] += value[i * values.stride(1) + j] * from[j];
    }
    for (int i = 0; i < Block; ++i) y(row, i) = is_first ? sum[i] : y(row, i) + sum[i];
  } else {
    for (std::int64_t i = 0; i < b; ++i) {
      T sum = is_first ? T(0) : y(row, i);
      for (std::int64_t k = first; k < last; ++k)
        for (std::int64_t j = 0; j < b; ++j) sum += values(k, i, j) * x(std::int64_t{column[k]}, j);
      y(row, i) = sum;
    }
  }
}

template <class T>
struct product_function {
  template <class Starts, class Columns, class V, class Rows, class X, class H, class Y>
  constexpr void operator()(Starts starts, Columns columns, V values, Rows halo_rows, X x, H halo, Y y) const {
    const auto of = [&]<int Block>() {
      for_each_row(starts, [&](std::int64_t first, std::int64_t last, std::int64_t row) {
        add_rows<Block>(first, last, row, columns.data(), values, x, y, true);
      });
      for_each_halo_row(halo_rows, [&](std::int64_t first, std::int64_t last, std::int64_t row) {
        add_rows<Block>(first, last, row, columns.data(), values, halo, y, false);
      });
    };
    switch (y.extent(1)) {
      case 1: return of.template operator()<1>();
      case 2: return of.template operator()<2>();
      case 3: return of.template operator()<3>();
      case 4: return of.template operator()<4>();
      default: return of.template operator()<0>();
    }
  }
  // No numbers that are columns and row pointers of a matrix are found by chance: the law is tried on rows without entries.
  static constexpr std::array<std::tuple<int, int, T, int, T, T>, 1> samples() { return {std::tuple(0, 0, T(1), 0, T(1), T(1))}; }
};

template <class T>
struct transposed_function {
  /// `like`: as many elements as the device has of the result. `sends`: as many as are sent.
  template <class Starts, class Columns, class V, class Rows, class Y, class Like, class Sends, class X, class H>
  constexpr void operator()(Starts starts, Columns columns, V values, Rows halo_rows, Y y, Like, Sends, X x, H halo) const {
    const auto clear = [](const auto& to) {
      for (std::int64_t i = 0; i < to.extent(0); ++i)
        for (std::int64_t j = 0; j < to.extent(1); ++j) to(i, j) = 0;
    };
    clear(x);
    clear(halo);
    const auto add = [&](const auto& to) {
      return [&, to](std::int64_t first, std::int64_t last, std::int64_t row) {
        const std::int32_t* const column = columns.data();
        if (y.extent(1) == 1) {
          const T of_row = y(row, 0);
          T* const out = to.data();
          for (std::int64_t k = first; k < last; ++k) out[column[k] * to.stride(0)] += values(k, 0, 0) * of_row;
          return;
        }
        for (std::int64_t k = first; k < last; ++k)
          for (std::int64_t i = 0; i < y.extent(1); ++i)
            for (std::int64_t j = 0; j < y.extent(1); ++j) to(std::int64_t{column[k]}, j) += values(k, i, j) * y(row, i);
      };
    };
    for_each_row(starts, add(x));
    for_each_halo_row(halo_rows, add(halo));
  }
  static constexpr std::array<std::tuple<int, int, T, int, T, int, int>, 1> samples() {
    return {std::tuple(0, 0, T(1), 0, T(1), 0, 0)};
  }
};

/// The gradient by the values: dy x^T at each entry.
template <class T>
struct entries_function {
  template <class Starts, class Columns, class Rows, class X, class H, class Dy, class V>
  constexpr void operator()(Starts starts, Columns columns, Rows halo_rows, X x, H halo, Dy dy, V values) const {
    for (std::int64_t k = 0; k < values.extent(0); ++k)
      for (std::int64_t i = 0; i < values.extent(1); ++i)
        for (std::int64_t j = 0; j < values.extent(2); ++j) values(k, i, j) = 0;
    const auto put = [&](const auto& from) {
      return [&, from](std::int64_t first, std::int64_t last, std::int64_t row) {
        for (std::int64_t k = first; k < last; ++k)
          for (std::int64_t i = 0; i < values.extent(1); ++i)
            for (std::int64_t j = 0; j < values.extent(2); ++j)
              values(k, i, j) = dy(row, i) * from(std::int64_t{columns.data()[k]}, j);
      };
    };
    for_each_row(starts, put(x));
    for_each_halo_row(halo_rows, put(halo));
  }
  static constexpr std::array<std::tuple<int, int, int, T, T, T>, 1> samples() { return {std::tuple(0, 0, 0, T(1), T(1), T(1))}; }
};

template <class T>
struct product_gradient {
  constexpr std::tuple<value, value, value, value, value, value> operator()(value starts, value columns, value values,
                                                                            value halo_rows, value x, value halo, value y,
                                                                            value dy) const;
};
template <class T>
struct transposed_gradient {
  constexpr std::tuple<value, value, value, value, value, value, value> operator()(value starts, value columns, value values,
                                                                                   value halo_rows, value y, value like,
                                                                                   value sends, value x, value halo, value dx,
                                                                                   value dhalo) const;
};

using index = std::int32_t;
/// y = A x of the rows of a device: its own part of x, and what others sent.
template <class T>
inline constexpr auto product =
    local_op<"[p],[k],[k][b][a=b],[m][q=2],[c][b],[h][b]->[r=p-1][b]", types<T(index, index, T, index, T, T)>, flops<0>>(
        with_gradient(product_function<T>{}, product_gradient<T>{}));
/// A^T y of the rows of a device: what is of its own part of the result, and what is of others'.
template <class T>
inline constexpr auto transposed = local_op<"[p],[k],[k][b][a=b],[m][q=2],[r=p-1][b],[c],[h]->[c][b],[h][b]",
                                            types<std::tuple<T, T>(index, index, T, index, T, std::int8_t, index)>, flops<0>>(
    with_gradient(transposed_function<T>{}, transposed_gradient<T>{}));
template <class T>
inline constexpr auto by_entries =
    local_op<"[p],[k],[m][q=2],[c][b],[h][b],[r=p-1][b]->[k][b][a=b]", types<T(index, index, index, T, T, T)>, flops<0>>(
        entries_function<T>{});

template <class T>
constexpr auto transposed_of(operand starts, value columns, value values, value halo_rows, value y, std::int64_t own,
                             std::int64_t sent) {
  const value like = constant<std::int8_t>(y, {own}, std::int8_t{0}, starts.at),
              sends = constant<std::int32_t>(y, {sent}, 0, starts.at);
  return transposed<T>(starts, columns, values, halo_rows, y, like, sends);
}
template <class T>
constexpr std::tuple<value, value, value, value, value, value> product_gradient<T>::operator()(value starts, value columns,
                                                                                               value values, value halo_rows,
                                                                                               value x, value halo, value,
                                                                                               value dy) const {
  const auto [own, sent] = transposed_of<T>(starts, columns, values, halo_rows, dy, x.shape()[0], halo.shape()[0]);
  return {value{}, value{}, by_entries<T>(starts, columns, halo_rows, x, halo, dy), value{}, own, sent};
}
template <class T>
constexpr std::tuple<value, value, value, value, value, value, value> transposed_gradient<T>::operator()(
    value starts, value columns, value values, value halo_rows, value y, value, value, value, value, value dx,
    value dhalo) const {
  return {value{},
          value{},
          by_entries<T>(starts, columns, halo_rows, dx, dhalo, y),
          value{},
          product<T>(starts, columns, values, halo_rows, dx, dhalo),
          value{},
          value{}};
}

}  // namespace gspmd::detail::sparse
