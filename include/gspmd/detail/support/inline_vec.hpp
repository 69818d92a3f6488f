// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "gspmd/error.hpp"

namespace gspmd::detail {

[[noreturn, gnu::cold]] inline void refuse_element_of_full_list(int capacity) {
  throw error("a list of the library has room for " + std::to_string(capacity) + " elements, and one more is put in");
}

/// A vector with its elements inside the object, so that it can be a part of a structural constant.
///
/// Planning runs in constant evaluation, and each allocation and call there counts against the compilers' limits. This
/// type needs neither. The capacity is a limit of the library (rank, axes). Code that fills a list from user input
/// checks the size first, so that the error can name the operator. push_back to a full list throws gspmd::error, or
/// fails to compile in a constant.
template <class T, int Capacity>
struct inline_vec {
  T items[Capacity]{};
  int count = 0;

  static constexpr int capacity = Capacity;

  constexpr inline_vec() = default;
  /// Makes `n` copies of `value`. A list in braces, `{20, 14}`, has these elements instead.
  explicit constexpr inline_vec(int n, T value) {
    for (int i = 0; i < n; ++i) push_back(value);
  }
  constexpr inline_vec(std::initializer_list<T> list) {
    for (const T& value : list) push_back(value);
  }

  [[nodiscard]] constexpr int size() const { return count; }
  [[nodiscard]] constexpr bool empty() const { return count == 0; }
  constexpr T& operator[](int i) { return items[i]; }
  constexpr const T& operator[](int i) const { return items[i]; }
  constexpr void push_back(T value) { items[count < Capacity ? count++ : no_room()] = value; }
  constexpr void pop_back() { items[--count] = T{}; }
  constexpr void clear() {
    while (count > 0) pop_back();
  }
  constexpr T* data() { return items; }
  constexpr const T* data() const { return items; }
  constexpr T* begin() & { return items; }
  constexpr T* end() & { return items + count; }
  constexpr const T* begin() const& { return items; }
  constexpr const T* end() const& { return items + count; }
  constexpr const T* begin() const&& = delete;  // two calls of x.shape() return two lists; use auto s = x.shape();
  constexpr const T* end() const&& = delete;    // see above

  constexpr void insert(int at, T value) {
    for (int i = count < Capacity ? count++ : no_room(); i > at; --i) items[i] = items[i - 1];
    items[at] = value;
  }

  friend constexpr bool operator==(const inline_vec& a, const inline_vec& b) {
    if (a.count != b.count) return false;
    const T* const end = a.items + a.count;
    for (const T *x = a.items, *y = b.items; x != end; ++x, ++y)
      if (!(*x == *y)) return false;
    return true;
  }

 private:
  static int no_room() { refuse_element_of_full_list(Capacity); }
};

/// The largest rank of a tensor, and below the largest number of mesh axes. A program that exceeds a limit gets an
/// error.
inline constexpr int max_rank = 32;
inline constexpr int max_windows = 4;  // dims of an operand that an einsum reads through windows
inline constexpr int max_axes = 16;

using extents = inline_vec<std::int64_t, max_rank>;

constexpr std::int64_t elements(const extents& shape) {
  std::int64_t n = 1;
  for (int i = 0; i < shape.count; ++i) n *= shape.items[i];
  return n;
}

}  // namespace gspmd::detail
