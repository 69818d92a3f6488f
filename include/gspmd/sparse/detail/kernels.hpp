// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "gspmd/index/lookup.hpp"
#include "gspmd/ops/local_op.hpp"
#include "gspmd/ops/shape.hpp"

/// The operators of one device on its rows of a sparse matrix. Entries that read the device's own part of x precede,
/// in the order of the rows. Entries that read elements of other devices follow, for the rows in `halo_rows`. Each
/// line of `halo_rows` has a row and the position of its first entry; the last line ends the entries of the row before
/// it.
namespace gspmd::detail::sparse {

/// for_each_row calls `f(first entry, last entry, row)` for the rows of the device's own entries. for_each_halo_row
/// does so for the entries that read elements of other devices.
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

/// Calls `f` with the block size as a constant if it is 1 to 4 and all operands and results are dense. Then the loops
/// over a block are unrolled, and positions need no multiplication. Otherwise calls `f` with 0. The last stride of a
/// `local_block` is 1 for every tensor, so only the other strides are compared.
template <class Values, class F, class... Vectors>
constexpr void with_block(const Values& values, F&& f, const Vectors&... vectors) {
  const auto b = values.extent(1);
  if (values.stride(0) != b * b || values.stride(1) != b || !((vectors.stride(0) == b) && ...)) return f.template operator()<0>();
  switch (b) {
    case 1: return f.template operator()<1>();
    case 2: return f.template operator()<2>();
    case 3: return f.template operator()<3>();
    case 4: return f.template operator()<4>();
    default: return f.template operator()<0>();
  }
}

/// Computes the product of a row with x, and stores it in y. If `is_more`, adds it to y.
template <int Block, class V, class X, class Y>
constexpr void add_row(std::int64_t first, std::int64_t last, std::int64_t row, const std::int32_t* column, const V& values,
                       const X& x, const Y& y, bool is_more) {
  using T = typename Y::element_type;
  if constexpr (Block > 0) {
    const T *const value = values.data(), *const from = x.data();
    T* const to = y.data() + row * Block;
    T sum[static_cast<std::size_t>(Block)]{};
    for (std::int64_t k = first; k < last; ++k)
      for (int i = 0; i < Block; ++i)
        for (int j = 0; j < Block; ++j) sum[i] += value[(k * Block + i) * Block + j] * from[std::int64_t{column[k]} * Block + j];
    for (int i = 0; i < Block; ++i) to[i] = is_more ? to[i] + sum[i] : sum[i];
  } else {
    for (std::int64_t i = 0; i < y.extent(1); ++i) {
      T sum = is_more ? y(row, i) : T(0);
      for (std::int64_t k = first; k < last; ++k)
        for (std::int64_t j = 0; j < y.extent(1); ++j) sum += values(k, i, j) * x(std::int64_t{column[k]}, j);
      y(row, i) = sum;
    }
  }
}

template <class T>
struct product_function {
  template <class Starts, class Columns, class V, class Rows, class X, class H, class Y>
  constexpr void operator()(Starts starts, Columns cols, V values, Rows halo_rows, X x, H halo, Y y) const {
    const std::int32_t* const column = cols.data();
    const auto all = [&]<int Block>() {
      for_each_row(starts, [=](std::int64_t first, std::int64_t last, std::int64_t row) {
        add_row<Block>(first, last, row, column, values, x, y, false);
      });
      for_each_halo_row(halo_rows, [=](std::int64_t first, std::int64_t last, std::int64_t row) {
        add_row<Block>(first, last, row, column, values, halo, y, true);
      });
    };
    with_block(values, all, x, halo, y);
  }
  // Arbitrary numbers are not valid columns and row pointers, so the law is checked on rows without entries.
  static constexpr std::array<std::tuple<int, int, T, int, T, T>, 1> samples() { return {std::tuple(0, 0, T(1), 0, T(1), T(1))}; }
};

template <class Block>
constexpr void clear(const Block& to) {
  if (to.stride(0) == to.extent(1)) {
    std::fill_n(to.data(), to.extent(0) * to.extent(1), typename Block::element_type(0));
    return;
  }
  for (std::int64_t i = 0; i < to.extent(0); ++i)
    for (std::int64_t j = 0; j < to.extent(1); ++j) to(i, j) = 0;
}
/// Adds the entries of a row, times y, to the elements of x at their columns.
template <int Block, class V, class Y, class X>
constexpr void spread_row(std::int64_t first, std::int64_t last, std::int64_t row, const std::int32_t* column, const V& values,
                          const Y& y, const X& x) {
  using T = typename X::element_type;
  if constexpr (Block > 0) {
    const T* const value = values.data();
    T* const to = x.data();
    T of_row[static_cast<std::size_t>(Block)]{};
    for (int i = 0; i < Block; ++i) of_row[i] = y.data()[row * Block + i];
    for (std::int64_t k = first; k < last; ++k)
      for (int i = 0; i < Block; ++i)
        for (int j = 0; j < Block; ++j) to[std::int64_t{column[k]} * Block + j] += value[(k * Block + i) * Block + j] * of_row[i];
  } else {
    for (std::int64_t k = first; k < last; ++k)
      for (std::int64_t i = 0; i < y.extent(1); ++i)
        for (std::int64_t j = 0; j < y.extent(1); ++j) x(std::int64_t{column[k]}, j) += values(k, i, j) * y(row, i);
  }
}

template <class T>
struct transposed_function {
  /// The extent of `like` is the device's number of elements of the result. The extent of `sends` is the number of
  /// elements that it sends.
  template <class Starts, class Columns, class V, class Rows, class Y, class Like, class Sends, class X, class H>
  constexpr void operator()(Starts starts, Columns cols, V values, Rows halo_rows, Y y, Like, Sends, X x, H halo) const {
    clear(x);
    clear(halo);
    const std::int32_t* const column = cols.data();
    const auto all = [&]<int Block>() {
      for_each_row(starts, [=](std::int64_t first, std::int64_t last, std::int64_t row) {
        spread_row<Block>(first, last, row, column, values, y, x);
      });
      for_each_halo_row(halo_rows, [=](std::int64_t first, std::int64_t last, std::int64_t row) {
        spread_row<Block>(first, last, row, column, values, y, halo);
      });
    };
    with_block(values, all, x, halo, y);
  }
  static constexpr std::array<std::tuple<int, int, T, int, T, int, int>, 1> samples() {
    return {std::tuple(0, 0, T(1), 0, T(1), 0, 0)};
  }
};

/// Computes only the second result of transposed_function, from the rows that read elements of other devices.
template <class T>
struct transposed_halo_function {
  template <class Starts, class Columns, class V, class Rows, class Y, class Like, class Sends, class H>
  constexpr void operator()(Starts, Columns cols, V values, Rows halo_rows, Y y, Like, Sends, H halo) const {
    clear(halo);
    with_block(
        values,
        [&]<int Block>() {
          for_each_halo_row(halo_rows, [=](std::int64_t first, std::int64_t last, std::int64_t row) {
            spread_row<Block>(first, last, row, cols.data(), values, y, halo);
          });
        },
        halo, y);
  }
  static constexpr std::array<std::tuple<int, int, T, int, T, int, int>, 1> samples() {
    return {std::tuple(0, 0, T(1), 0, T(1), 0, 0)};
  }
};
/// Computes the first result of transposed_function, and adds the elements that other devices sent.
template <class T>
struct transposed_own_function {
  template <class Starts, class Columns, class V, class Rows, class Y, class Like, class Sends, class H, class X>
  constexpr void operator()(Starts starts, Columns cols, V values, Rows, Y y, Like, Sends sends, H halo, X x) const {
    clear(x);
    with_block(
        values,
        [&]<int Block>() {
          for_each_row(starts, [=](std::int64_t first, std::int64_t last, std::int64_t row) {
            spread_row<Block>(first, last, row, cols.data(), values, y, x);
          });
        },
        x, y);
    for (std::int64_t i = 0; i < halo.extent(0); ++i)
      for (std::int64_t j = 0; j < halo.extent(1); ++j) x(std::int64_t{sends(i)}, j) += halo(i, j);
  }
  static constexpr std::array<std::tuple<int, int, T, int, T, int, int, T>, 1> samples() {
    return {std::tuple(0, 0, T(1), 0, T(1), 0, 0, T(1))};
  }
};

/// The gradient with respect to the values: dy x^T at each entry.
template <class T>
struct entries_function {
  template <class Starts, class Columns, class Rows, class X, class H, class Dy, class V>
  constexpr void operator()(Starts starts, Columns cols, Rows halo_rows, X x, H halo, Dy dy, V values) const {
    for (std::int64_t k = 0; k < values.extent(0); ++k)
      for (std::int64_t i = 0; i < values.extent(1); ++i)
        for (std::int64_t j = 0; j < values.extent(2); ++j) values(k, i, j) = 0;
    const auto put = [&](const auto& from) {
      return [&, from](std::int64_t first, std::int64_t last, std::int64_t row) {
        for (std::int64_t k = first; k < last; ++k)
          for (std::int64_t i = 0; i < values.extent(1); ++i)
            for (std::int64_t j = 0; j < values.extent(2); ++j)
              values(k, i, j) = dy(row, i) * from(std::int64_t{cols.data()[k]}, j);
      };
    };
    for_each_row(starts, put(x));
    for_each_halo_row(halo_rows, put(halo));
  }
  static constexpr std::array<std::tuple<int, int, int, T, T, T>, 1> samples() { return {std::tuple(0, 0, 0, T(1), T(1), T(1))}; }
};

template <std::size_t N>
using gradients = decltype(std::tuple_cat(std::array<value, N>{}));

template <class T>
struct product_gradient {
  constexpr gradients<6> operator()(value starts, value cols, value values, value halo_rows, value x, value halo, value y,
                                    value dy) const;
};
template <class T>
struct transposed_gradient {
  constexpr gradients<7> operator()(value starts, value cols, value values, value halo_rows, value y, value like, value sends,
                                    value x, value halo, value dx, value dhalo) const;
};
template <class T>
struct transposed_halo_gradient {
  constexpr gradients<7> operator()(value starts, value cols, value values, value halo_rows, value y, value like, value sends,
                                    value halo, value dhalo) const;
};
template <class T>
struct transposed_own_gradient {
  constexpr gradients<8> operator()(value starts, value cols, value values, value halo_rows, value y, value like, value sends,
                                    value halo, value x, value dx) const;
};

using index = std::int32_t;
/// y = A x for the rows of a device, from its own part of x and the elements that other devices sent.
template <class T>
inline constexpr auto product =
    local_op<"[p],[k],[k][b][a=b],[m][q=2],[c][b],[h][b]->[r=p-1][b]", types<T(index, index, T, index, T, T)>, flops<0>>(
        with_gradient(product_function<T>{}, product_gradient<T>{}));
/// The same without a gradient, for the gradients of A^T y. If the gradients of two operators referred to each other,
/// a compiler would have to know each operator before it is defined.
template <class T>
inline constexpr auto plain_product =
    local_op<"[p],[k],[k][b][a=b],[m][q=2],[c][b],[h][b]->[r=p-1][b]", types<T(index, index, T, index, T, T)>, flops<0>>(
        product_function<T>{});
/// A^T y for the rows of a device: the part of the result that the device holds, and the part that other devices hold.
template <class T>
inline constexpr auto transposed = local_op<"[p],[k],[k][b][a=b],[m][q=2],[r=p-1][b],[c],[h]->[c][b],[h][b]",
                                            types<std::tuple<T, T>(index, index, T, index, T, std::int8_t, index)>, flops<0>>(
    with_gradient(transposed_function<T>{}, transposed_gradient<T>{}));
/// The same in two steps. The first step computes the part for other devices, which is then sent. The second step
/// computes the device's own part and adds the received elements.
template <class T>
inline constexpr auto transposed_halo =
    local_op<"[p],[k],[k][b][a=b],[m][q=2],[r=p-1][b],[c],[h]->[h][b]", types<T(index, index, T, index, T, std::int8_t, index)>,
             flops<0>>(with_gradient(transposed_halo_function<T>{}, transposed_halo_gradient<T>{}));
template <class T>
inline constexpr auto transposed_own = local_op<"[p],[k],[k][b][a=b],[m][q=2],[r=p-1][b],[c],[h],[h][b]->[c][b]",
                                                types<T(index, index, T, index, T, std::int8_t, index, T)>, flops<0>>(
    with_gradient(transposed_own_function<T>{}, transposed_own_gradient<T>{}));
template <class T>
inline constexpr auto by_entries =
    local_op<"[p],[k],[m][q=2],[c][b],[h][b],[r=p-1][b]->[k][b][a=b]", types<T(index, index, index, T, T, T)>, flops<0>>(
        entries_function<T>{});

constexpr value as_many(value like, std::int64_t elements, location at = location::current()) {
  return constant<std::int8_t>(like, {elements}, std::int8_t{0}, at);
}
template <class T>
constexpr gradients<6> product_gradient<T>::operator()(value starts, value cols, value values, value halo_rows, value x,
                                                       value halo, value, value dy) const {
  const value sends = constant<std::int32_t>(starts, {halo.shape()[0]}, 0);
  const auto [own, sent] = transposed<T>(starts, cols, values, halo_rows, dy, as_many(x, x.shape()[0]), sends);
  return {value{}, value{}, by_entries<T>(starts, cols, halo_rows, x, halo, dy), value{}, own, sent};
}
template <class T>
constexpr gradients<7> transposed_gradient<T>::operator()(value starts, value cols, value values, value halo_rows, value y, value,
                                                          value, value, value, value dx, value dhalo) const {
  return {value{},
          value{},
          by_entries<T>(starts, cols, halo_rows, dx, dhalo, y),
          value{},
          plain_product<T>(starts, cols, values, halo_rows, dx, dhalo),
          value{},
          value{}};
}
// Each of the two steps is the transposed product, with a zero gradient of the other result.
template <class T>
constexpr gradients<7> transposed_halo_gradient<T>::operator()(value starts, value cols, value values, value halo_rows, value y,
                                                               value like, value sends, value, value dhalo) const {
  const value dx = constant<T>(y, {like.shape()[0], y.shape()[1]}, T(0));
  return transposed_gradient<T>{}(starts, cols, values, halo_rows, y, like, sends, value{}, value{}, dx, dhalo);
}
template <class T>
constexpr gradients<8> transposed_own_gradient<T>::operator()(value starts, value cols, value values, value halo_rows, value y,
                                                              value like, value sends, value halo, value, value dx) const {
  return std::tuple_cat(
      transposed_gradient<T>{}(starts, cols, values, halo_rows, y, like, sends, value{}, value{}, dx, zeros_like(halo)),
      std::tuple{take(dx, sends, 0)});
}

}  // namespace gspmd::detail::sparse
