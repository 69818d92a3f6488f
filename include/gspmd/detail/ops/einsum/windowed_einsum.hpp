// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/window.hpp"
#include "gspmd/detail/ops/einsum/einsum.hpp"

/// An einsum with two operands that reads the first operand through windows: convolution and its gradients (GSPMD 4.3
/// and A.2).
///
///   forward         X[b,J,i] W[w,i,f] -> Y[b,o,f]     J = stride * o + dilation * w + offset
///   gradient by W   X[b,J,i] dY[b,o,f] -> dW[w,i,f]   the same windows
///   gradient by X   dY[b,J,f] W[w,i,f] -> dX[b,j,i]   window_dim::transposed()
namespace gspmd::detail {

/// A dim of the first operand that two letters share. Mesh axes may split `outer`, whose indices are the outputs of the
/// window. `inner` counts the elements of the window, and is whole. Indices outside of the operand read zeros.
struct letter_window {
  std::int8_t outer = 0, inner = 0;
  window_dim along;  // its size is the extent of `inner`, or 1 if that is 0
};

/// The letters of operands and result. A windowed dim of operand 0 has code_of_window.
struct windowed_einsum {
  inline_vec<std::int8_t, max_rank> letters[3];
  inline_vec<letter_window, max_windows> windows;
};

template <class Letters>
constexpr int place_of(const Letters& letters, int letter) {
  for (int d = 0; d < letters.count; ++d)
    if (letters[d] == letter) return d;
  return -1;
}
constexpr const letter_window* window_with(const windowed_einsum& e, int letter) {
  for (const auto& w : e.windows)
    if (w.outer == letter || w.inner == letter) return &w;
  return nullptr;
}

constexpr windowed_einsum windowed_einsum_of(const graph& g, const node& n) {
  windowed_einsum e;
  int at = 0;
  for (int k = 0; k < 3; ++k) {
    const auto rank = k < 2 ? operand_of(g, n, k).shape.count : n.shape.count;
    for (int d = 0; d < rank; ++d) e.letters[k].push_back(static_cast<std::int8_t>(n.attributes[at++]));
  }
  for (; at < n.attributes.count; at += 7) {
    const std::int64_t* const a = n.attributes.items + at;
    e.windows.push_back({static_cast<std::int8_t>(a[0]), static_cast<std::int8_t>(a[1]), {a[2], a[3], a[4], a[5], a[6]}});
  }
  return e;
}

/// Sums operand `k` over the letters that only it has.
constexpr int add_without_lone_letters(graph& g, windowed_einsum& e, int k, int operand, location at) {
  inline_vec<std::int8_t, max_rank> kept;
  dim_mask lone = 0;
  for (int d = 0; d < e.letters[k].count; ++d) {
    const int l = e.letters[k][d];
    if (!is_window(l) && place_of(e.letters[1 - k], l) < 0 && place_of(e.letters[2], l) < 0 && window_with(e, l) == nullptr)
      lone |= dim_bit(d);
    else kept.push_back(static_cast<std::int8_t>(l));
  }
  if (lone == 0) return operand;
  e.letters[k] = kept;
  return add_reduce(g, operand, lone, monoid::add, at);
}

/// Adds the operator. The caller has checked shapes and types. Each letter of a window is in the other operand or in
/// the result.
constexpr int add_windowed_einsum(graph& g, windowed_einsum e, int lhs, int rhs, const extents& shape, location at);

/// The extents of letters. A letter that is only in a window of operand 0 has no known extent.
class letter_extents {
 public:
  template <class Shape>
  constexpr void know(const inline_vec<std::int8_t, max_rank>& letters, const Shape& shape) {
    for (int d = 0; d < letters.count; ++d)
      if (!is_window(letters[d])) of_[letters[d]] = shape[d];
  }
  constexpr std::int64_t operator[](int letter) const { return of_[letter]; }
  constexpr std::int64_t& operator[](int letter) { return of_[letter]; }

 private:
  std::int64_t of_[128]{};
};
constexpr letter_extents global_extents(const graph& g, const node& n, const windowed_einsum& e) {
  letter_extents all;
  all.know(e.letters[0], operand_of(g, n, 0).shape);
  all.know(e.letters[1], operand_of(g, n, 1).shape);
  all.know(e.letters[2], n.shape);
  return all;
}

/// The gradient of operand 0. A window with a letter in `moved`, which is dY or the other operand, is solved for that
/// letter.
struct window_gradient {
  windowed_einsum e;
  bool is_possible = true;
};
constexpr window_gradient gradient_by_windows(const windowed_einsum& e, const letter_extents& extent, const extents& operand,
                                              const inline_vec<std::int8_t, max_rank>& moved,
                                              const inline_vec<std::int8_t, max_rank>& other) {
  window_gradient result;
  auto& back = result.e;
  back.letters[0] = moved;
  back.letters[1] = other;
  back.letters[2] = e.letters[0];
  std::int8_t fresh = 'a';
  const auto is_used = [&](std::int8_t l) {
    for (const auto& list : e.letters)
      if (place_of(list, l) >= 0) return true;
    return window_with(e, l) != nullptr || window_with(back, l) != nullptr;
  };
  for (int k = 0; k < e.windows.count; ++k) {
    const auto& w = e.windows[k];
    const auto stands_alone = [&](std::int8_t l) {
      return place_of(moved, l) >= 0 && place_of(other, l) < 0 && place_of(e.letters[0], l) < 0;
    };
    const bool is_outer = stands_alone(w.outer);
    if (!is_outer && !stands_alone(w.inner)) result.is_possible = false;
    if (!result.is_possible) return result;
    while (is_used(fresh)) fresh = fresh == 'z' ? 'A' : static_cast<std::int8_t>(fresh + 1);
    const auto solved = is_outer ? w.outer : w.inner;
    const auto of_fresh = operand[place_of(e.letters[0], code_of_window(k))];
    if (is_outer) {
      back.windows.push_back({fresh, w.inner, w.along.transposed()});
    } else {
      // base * j = stride * o + dilation * w + offset, solved for w. The outer letter is the letter that counts
      // upwards.
      const auto& v = w.along;
      if (v.dilation > 0) back.windows.push_back({fresh, w.outer, {extent[w.outer], v.base, -v.stride, -v.offset, v.dilation}});
      else back.windows.push_back({w.outer, fresh, {of_fresh, v.stride, -v.base, v.offset, -v.dilation}});
      auto& size = back.windows[k].along.size;
      if (size == 0) size = 1;
    }
    back.letters[0][place_of(moved, solved)] = code_of_window(k);
    back.letters[2][place_of(e.letters[0], code_of_window(k))] = fresh;
  }
  return result;
}

}  // namespace gspmd::detail
