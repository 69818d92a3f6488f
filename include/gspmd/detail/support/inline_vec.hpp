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

/// A vector whose elements stand inside the object, so that it may be a part of a structural constant.
///
/// Planning runs in constant evaluation, where every allocation and every call counts against the compilers' limits: this
/// type costs neither. The capacity is a limit of the library (rank, axes); those who fill it with what a user gives check it
/// where a message can still name the operator. A list that is full takes no more: a gspmd::error, or no constant.
template <class T, int Capacity>
struct inline_vec {
  T items[Capacity]{};
  int count = 0;

  static constexpr int capacity = Capacity;

  constexpr inline_vec() = default;
  /// `n` times `value`. A list in braces, `{20, 14}`, is its elements.
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
  constexpr const T* begin() const&& = delete;  // x.shape().begin() and x.shape().end() are of two lists: auto s = x.shape();
  constexpr const T* end() const&& = delete;    // the same

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

/// The largest rank of a tensor and the largest number of mesh axes. A program beyond them is refused with an error.
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
