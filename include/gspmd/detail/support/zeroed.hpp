// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// Memory of zeros for tables. take() returns pieces of the memory. In a constant evaluation, an element of a
/// std::vector costs Clang more than ten steps of its limit. An element of this memory costs no step.
template <class T>
class zeroed {
 public:
  constexpr explicit zeroed(int count) : begin_(new T[static_cast<unsigned>(count)]()), next_(begin_) {}
  constexpr ~zeroed() { delete[] begin_; }
  zeroed(const zeroed&) = delete;
  zeroed& operator=(const zeroed&) = delete;

  /// Returns the next `count` elements. All calls together must not take more than there are.
  constexpr T* take(int count) {
    T* const piece = next_;
    next_ += count;
    return piece;
  }
  /// Sets each of `lists` to the next `count` elements.
  template <class... Lists>
  constexpr void take_each(int count, Lists*&... lists) {
    ((lists = take(count)), ...);
  }

 private:
  T* begin_;
  T* next_;
};

}  // namespace gspmd::detail
