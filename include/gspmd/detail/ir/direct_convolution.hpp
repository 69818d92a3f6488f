// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/contraction_plan.hpp"

namespace gspmd::detail {

/// Checks if a contraction is a convolution of channels-last tensors, as convolution libraries define it. One letter of
/// every window counts positions of the result and the other letter is summed. The other dims are batch dims of operand
/// and result, features of both operands, and features of the result. No window has a base, and no letter is in all
/// three tensors. The gradient with respect to the window is the same, with window and result exchanged.
class direct_convolution_search {
  using letter_list = inline_vec<std::int8_t, max_rank>;

 public:
  constexpr explicit direct_convolution_search(const contraction& c, bool makes_window)
      : c_(c), window_(makes_window ? c.out : c.rhs), result_(makes_window ? c.rhs : c.out), makes_window_(makes_window) {
    set_strides(c.lhs, strides_[0]);
    set_strides(window_, strides_[1]);
    set_strides(result_, strides_[2]);
  }

  constexpr direct_convolution find() {
    direct_convolution d;
    if (c_.windows.empty() || c_.windows.count > max_direct_dims) return d;
    for (const auto& w : c_.windows)
      if (!add_window(d, w)) return {};
    for (int l = 0; l < c_.extent.count; ++l)
      if (c_.extent[l] == 0 || (c_.extent[l] != 1 && !is_windowed(l) && !add_letter(d, l))) return {};
    if (d.in_features > 1 && d.in_feature_stride != 1) return {};
    if (d.out_features > 1 && d.out_feature_stride != 1) return {};
    d.is_one = true;
    d.makes_window = makes_window_;
    return d;
  }

 private:
  static constexpr bool holds(const letter_list& letters, int l) {
    for (const auto letter : letters)
      if (letter == l) return true;
    return false;
  }
  [[nodiscard]] constexpr bool is_windowed(int l) const {
    for (const auto& w : c_.windows)
      if (w.letter == l || w.inner == l) return true;
    return false;
  }
  /// Sets the strides of the letters. In the left operand, the stride of a window's dim is stored at its letter.
  constexpr void set_strides(const letter_list& letters, std::int64_t* strides) const {
    std::int64_t elems = 1;
    for (int i = letters.count - 1; i >= 0; --i) {
      const auto letter = letters[i];
      strides[letter] = elems;
      elems *= &letters == &c_.lhs ? extent_of_operand(letter) : c_.extent[letter];
    }
  }
  [[nodiscard]] constexpr std::int64_t extent_of_operand(int letter) const {
    for (const auto& w : c_.windows)
      if (w.letter == letter) return w.extent;
    return c_.extent[letter];
  }

  constexpr bool add_window(direct_convolution& d, const contraction_window& w) const {
    if (w.base != 1 || w.step < 1 || !holds(result_, w.letter) || holds(window_, w.letter) || !holds(window_, w.inner) ||
        holds(result_, w.inner) || holds(c_.lhs, w.inner))
      return false;
    direct_convolution::along_dim a;
    a.in_stride = strides_[0][w.letter];
    a.window = c_.extent[w.inner];
    a.window_stride = strides_[1][w.inner];
    a.out = c_.extent[w.letter];
    a.out_stride = strides_[2][w.letter];
    a.step = w.step;
    a.dilation = w.inner_step;
    auto first = w.first;
    if (a.dilation < 0) {  // read from the other end
      first += a.dilation * (a.window - 1);
      d.window_first += (a.window - 1) * a.window_stride;
      a.window_stride = -a.window_stride;
      a.dilation = -a.dilation;
    }
    d.lhs_first += first * a.in_stride;
    // Use the whole dim, so that it is contiguous in memory, unless it has space for more results.
    const auto span = (a.window - 1) * a.dilation + 1;
    a.in = w.extent - first;
    if ((a.in - span) / a.step + 1 != a.out) a.in = (a.out - 1) * a.step + span;
    d.windows.push_back(a);
    return true;
  }
  constexpr bool add_letter(direct_convolution& d, int l) const {
    const bool in_lhs = holds(c_.lhs, l), in_window = holds(window_, l), in_result = holds(result_, l);
    const auto extent = c_.extent[l];
    if (in_lhs && in_result && !in_window) {
      if (d.batch == 1) {
        d.batch = extent;
        d.batch_in_stride = strides_[0][l];
        d.batch_out_stride = strides_[2][l];
        return true;
      }
      // Join two dims that are adjacent in both tensors, in either order.
      const auto is_one = [&](std::int64_t outer, std::int64_t inner, std::int64_t inner_extent) {
        return outer == inner * inner_extent;
      };
      const auto in = strides_[0][l], out = strides_[2][l];
      const bool is_inner = is_one(d.batch_in_stride, in, extent) && is_one(d.batch_out_stride, out, extent);
      if (!is_inner && !(is_one(in, d.batch_in_stride, d.batch) && is_one(out, d.batch_out_stride, d.batch))) return false;
      if (is_inner) {
        d.batch_in_stride = in;
        d.batch_out_stride = out;
      }
      d.batch *= extent;
      return true;
    }
    if (in_lhs && in_window && !in_result && d.in_features == 1) {
      d.in_features = extent;
      d.in_feature_stride = strides_[0][l];
      d.window_in_stride = strides_[1][l];
      return true;
    }
    if (!in_lhs && in_window && in_result && d.out_features == 1) {
      d.out_features = extent;
      d.out_feature_stride = strides_[2][l];
      d.window_out_stride = strides_[1][l];
      return true;
    }
    return false;
  }

  const contraction& c_;
  const letter_list &window_, &result_;
  bool makes_window_;
  std::int64_t strides_[3][max_letters]{};
};

constexpr direct_convolution find_direct_convolution(const contraction& c) {
  const auto found = direct_convolution_search(c, false).find();
  return found.is_one ? found : direct_convolution_search(c, true).find();
}

}  // namespace gspmd::detail
