// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// std::vector for constant evaluation. With -D_GLIBCXX_DEBUG, std::vector is not a literal type; this is the same
/// container without checks.
#if defined(_GLIBCXX_DEBUG)
template <class T>
using constant_vector = std::__cxx1998::vector<T>;
#else
template <class T>
using constant_vector = std::vector<T>;
#endif

/// The subset of std::vector that the planner needs, with few calls. In a constant evaluation, an element of a
/// std::vector costs Clang more than ten steps of its limit to append and six to read. An element of a vec costs four
/// and two. Iterators are pointers, and an index can have any integer type.
///
/// An appended number without a value is not zero: use resize(n, value).
template <class T>
class vec {
  /// True if an array of T can be created in a single step, without a call for each element.
  static constexpr bool is_plain = std::is_trivially_default_constructible_v<T> && std::is_trivially_destructible_v<T>;

 public:
  using value_type = T;

  constexpr vec() = default;
  constexpr vec(std::size_t count, const T& value) { resize(count, value); }
  constexpr vec(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
  constexpr vec(const T* first, const T* last) { assign(first, last); }
  constexpr vec(const vec& other) {
    if (other.size_ != 0) assign(other.begin_, other.begin_ + other.size_);
  }
  constexpr vec(vec&& other) noexcept : begin_(other.begin_), size_(other.size_), room_(other.room_) { other.forget(); }
  constexpr vec& operator=(const vec& other) {
    if (this != &other) assign(other.begin_, other.begin_ + other.size_);
    return *this;
  }
  constexpr vec& operator=(vec&& other) noexcept {
    if (this == &other) return *this;
    free();
    begin_ = other.begin_;
    size_ = other.size_;
    room_ = other.room_;
    other.forget();
    return *this;
  }
  constexpr ~vec() {
    if constexpr (is_plain) delete[] begin_;
    else if (begin_ != nullptr) give_back();
  }

  [[nodiscard]] constexpr std::size_t size() const { return size_; }
  [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
  [[nodiscard]] constexpr T* data() { return begin_; }
  [[nodiscard]] constexpr const T* data() const { return begin_; }
  [[nodiscard]] constexpr T* begin() { return begin_; }
  [[nodiscard]] constexpr T* end() { return begin_ + size_; }
  [[nodiscard]] constexpr const T* begin() const { return begin_; }
  [[nodiscard]] constexpr const T* end() const { return begin_ + size_; }
  template <class Index>
  [[nodiscard]] constexpr T& operator[](Index i) {
    return begin_[i];
  }
  template <class Index>
  [[nodiscard]] constexpr const T& operator[](Index i) const {
    return begin_[i];
  }
  [[nodiscard]] constexpr T& front() { return begin_[0]; }
  [[nodiscard]] constexpr const T& front() const { return begin_[0]; }
  [[nodiscard]] constexpr T& back() { return begin_[size_ - 1]; }
  [[nodiscard]] constexpr const T& back() const { return begin_[size_ - 1]; }

  constexpr void reserve(std::size_t count) {
    if (count > room_ && !moves_to_grow()) move_to(count);
  }
  constexpr void push_back(const T& value) {
    if (size_ == room_) {
      T kept = value;  // `value` may be an element of this list
      move_to(grown());
      make(begin_ + size_, std::move(kept));
    } else if constexpr (is_plain) {
      begin_[size_] = value;
    } else {
      std::construct_at(begin_ + size_, value);
    }
    ++size_;
  }
  constexpr void push_back(T&& value)
    requires(!std::is_trivially_copyable_v<T>)
  {
    if (size_ == room_) {
      T kept = std::move(value);
      move_to(grown());
      make(begin_ + size_, std::move(kept));
    } else {
      make(begin_ + size_, std::move(value));
    }
    ++size_;
  }
  constexpr void pop_back() {
    --size_;
    if constexpr (!std::is_trivially_destructible_v<T>) begin_[size_].~T();
  }
  constexpr void clear() { resize(0); }
  /// Removes the elements after the first `count`.
  constexpr void resize(std::size_t count) {
    if constexpr (std::is_trivially_destructible_v<T>) size_ = count < size_ ? count : size_;
    else
      while (size_ > count) pop_back();
  }
  constexpr void resize(std::size_t count, const T& value) {
    if (count < size_) return resize(count);
    if (count > room_) {
      const T kept = value;
      move_to(count);
      fill(count, kept);
    } else {
      fill(count, value);
    }
  }
  constexpr void assign(const T* first, const T* last) {
    if (size_ != 0) clear();
    const auto count = static_cast<std::size_t>(last - first);
    if (count > room_) move_to(count);
    T* const to = begin_;
    if constexpr (is_plain)
      for (std::size_t i = 0; i < count; ++i) to[i] = first[i];
    else
      for (std::size_t i = 0; i < count; ++i) std::construct_at(to + i, first[i]);
    size_ = count;
  }
  constexpr void insert(T* where, const T& value) {
    const auto at = where - begin_;
    push_back(value);
    T* const to = begin_ + at;
    T* last = begin_ + size_ - 1;
    if (last == to) return;
    T kept = std::move(*last);
    for (; last != to; --last) *last = std::move(last[-1]);
    *to = std::move(kept);
  }
  constexpr void erase(T* where) {
    T* const last = begin_ + size_ - 1;
    for (; where != last; ++where) *where = std::move(where[1]);
    pop_back();
  }

  friend constexpr bool operator==(const vec& a, const vec& b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (!(a.begin_[i] == b.begin_[i])) return false;
    return true;
  }

 private:
  /// Returns true if each append moves the list: at run time, with GSPMD_TEST_MOVE_LISTS. A reference that is kept
  /// while a list grows then always reads freed memory, and not only if the list happens to be full. AddressSanitizer
  /// reports it (preset asan). A list of 1,000 elements or more moves once for each tenth that it grows, because
  /// programs of 70,000 operators would take minutes.
  static constexpr bool moves_to_grow() {
#ifdef GSPMD_TEST_MOVE_LISTS
    return !std::is_constant_evaluated();
#else
    return false;
#endif
  }
  /// Returns the new capacity of a full list that grows.
  constexpr std::size_t grown() const { return moves_to_grow() ? size_ + 1 + size_ / 1'000 * 100 : room_ == 0 ? 4 : 2 * room_; }
  static constexpr void make(T* at, T&& value) {
    if constexpr (is_plain) *at = value;
    else std::construct_at(at, std::move(value));
  }
  constexpr void fill(std::size_t count, const T& value) {
    T* const to = begin_;
    if constexpr (is_plain)
      for (std::size_t i = size_; i < count; ++i) to[i] = value;
    else
      for (std::size_t i = size_; i < count; ++i) std::construct_at(to + i, value);
    size_ = count;
  }
  // GCC 12 at -O3 assumes that the copy of a list of chars is longer than its new memory. Delete the pragmas when GCC
  // 12 is not supported any more.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif
  /// Moves the elements to memory for `room` elements.
  constexpr void move_to(std::size_t room) {
    T* const from = begin_;
    if constexpr (is_plain) {
      T* const to = new T[room];
      for (std::size_t i = 0; i < size_; ++i) to[i] = from[i];
      delete[] from;
      begin_ = to;
    } else {
      T* const to = std::allocator<T>{}.allocate(room);
      for (std::size_t i = 0; i < size_; ++i) std::construct_at(to + i, std::move(from[i]));
      free();
      begin_ = to;
    }
    room_ = room;
  }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
  constexpr void free() {
    if constexpr (is_plain) delete[] begin_;
    else if (begin_ != nullptr) give_back();
  }
  constexpr void give_back() {
    if constexpr (!std::is_trivially_destructible_v<T>)
      for (std::size_t i = 0; i < size_; ++i) begin_[i].~T();
    std::allocator<T>{}.deallocate(begin_, room_);
  }
  constexpr void forget() {
    begin_ = nullptr;
    size_ = room_ = 0;
  }

  T* begin_ = nullptr;
  std::size_t size_ = 0;
  std::size_t room_ = 0;
};

}  // namespace gspmd::detail
