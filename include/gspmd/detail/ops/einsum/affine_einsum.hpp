// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/einsum/convolution.hpp"
#include "gspmd/detail/ops/sources.hpp"

namespace gspmd::detail {

/// Adds an einsum that has windows: dims of one operand whose index is a sum of two letters, as in `(2x+w-1)`.
class affine_einsum {
 public:
  constexpr affine_einsum(graph& g, const einsum_equation& e, std::initializer_list<int> operands, location at)
      : g_(g), e_(e), at_(at) {
    for (const int o : operands) operands_[count_++] = o;
  }

  constexpr int add() {
    const int windowed = is_windowed(0) ? 0 : 1;
    for (int k = 0; k < count_; ++k)
      for (int d = 0; d < e_.operands[k].count; ++d)
        if (!is_window(e_.operands[k][d])) know(e_.operands[k][d], shape(k)[d]);
    for (int unsolved = e_.windows.count; unsolved > 0; --unsolved)  // each round solves at least one window, if one is solvable
      for (int d = 0; d < e_.operands[windowed].count; ++d)
        if (is_window(e_.operands[windowed][d]) && !solve(e_.windows[window_of(e_.operands[windowed][d])], windowed, d))
          return -1;

    windowed_einsum e;
    for (const char c : e_.operands[windowed]) e.letters[0].push_back(static_cast<std::int8_t>(c));
    if (count_ == 2)
      for (const char c : e_.operands[1 - windowed]) e.letters[1].push_back(static_cast<std::int8_t>(c));
    extents result;
    for (const char c : e_.result) {
      e.letters[2].push_back(static_cast<std::int8_t>(c));
      result.push_back(extent_[static_cast<int>(c)]);
    }
    for (const auto& w : e_.windows) e.windows.push_back(oriented(w));
    const int other = count_ == 2 ? operands_[1 - windowed] : add_number(g_, 1, type(), extents{}, "einsum", at_);
    return add_windowed_einsum(g_, e, operands_[windowed], other, result, at_);
  }

 private:
  [[nodiscard]] constexpr bool is_windowed(int k) const {
    for (const char c : e_.operands[k])
      if (is_window(c)) return true;
    return false;
  }
  [[nodiscard]] constexpr extents shape(int k) const { return g_.nodes[static_cast<std::size_t>(operands_[k])].shape; }
  [[nodiscard]] constexpr dtype type() const { return g_.nodes[static_cast<std::size_t>(operands_[0])].type; }
  constexpr void know(char letter, std::int64_t extent) {
    extent_[static_cast<int>(letter)] = extent;
    known_[static_cast<int>(letter)] = true;
  }

  /// Determines the extent of a window's letter that is no dim of a tensor. It is the largest extent for which all
  /// indices are inside dim `d`. A letter that counts upwards is limited by the end of the dim only. A letter that
  /// counts downwards is limited by the start of the dim only.
  ///   `2x+w-1` with w of 3, on a dim of 8: x of 4
  constexpr bool solve(const equation_window& w, int operand, int d) {
    const bool known[] = {known_[static_cast<int>(w.letter[0])], known_[static_cast<int>(w.letter[1])]};
    if (known[0] == known[1]) return true;  // both are known, or the window is not solvable yet
    const int open = known[0] ? 1 : 0, other = 1 - open;
    const auto own = extent_[static_cast<int>(w.letter[other])];
    const auto last = own == 0 ? 0 : w.step[other] * (own - 1);
    const auto extent = shape(operand)[d];
    const auto by = w.step[open];
    const auto room = by > 0 ? extent - 1 - w.first - (last > 0 ? last : 0) : w.first + (last < 0 ? last : 0);
    if (room < 0)
      return g_.fail(at_, "einsum", mistake::window,
                     text("the window `") << w.letter[other] << "` of `(" << written(w) << ")` has " << own
                                          << " elements and spans " << (last < 0 ? -last : last) + 1 << ", dim " << d
                                          << " of operand " << operand << " is " << extent << " of " << shape_text(shape(operand))
                                          << ": no place is left for `" << w.letter[open] << '`') >= 0;
    know(w.letter[open], room / (by < 0 ? -by : by) + 1);
    return true;
  }
  [[nodiscard]] static constexpr text written(const equation_window& w) {
    return window_text(w.letter[0], w.step[0], w.letter[1], w.step[1], w.first);
  }
  /// Orders the letters of a window as outer and inner. Mesh axes may split the outer letter: the larger one, if it
  /// counts upwards.
  [[nodiscard]] constexpr letter_window oriented(const equation_window& w) const {
    const auto extent = [&](int i) { return extent_[static_cast<int>(w.letter[i])]; };
    int outer = extent(1) > extent(0) ? 1 : 0;
    if (extent(0) == extent(1) && !holds(e_.result, w.letter[0])) outer = 1;
    if (w.step[outer] < 0) outer = 1 - outer;
    const int inner = 1 - outer;
    const auto size = extent(inner) == 0 ? 1 : extent(inner);
    return {static_cast<std::int8_t>(w.letter[outer]),
            static_cast<std::int8_t>(w.letter[inner]),
            {size, w.step[outer], w.step[inner], w.first, 1}};
  }

  graph& g_;
  const einsum_equation& e_;
  location at_;
  int operands_[2]{};
  int count_ = 0;
  std::int64_t extent_[128]{};
  bool known_[128]{};
};

/// Adds the einsum of an equation, with or without windows.
constexpr int add_any_einsum(graph& g, const einsum_equation& e, std::initializer_list<int> operands, location at) {
  if (e.windows.empty()) return add_einsum(g, e, operands, at);
  if (!fits_operands(g, e, operands, at)) return -1;
  if (const dtype type = g.nodes[static_cast<std::size_t>(*operands.begin())].type; is_complex(type) || is_own(type))
    return g.fail(at, "einsum", mistake::type, text("with a window ") << not_defined_with_windows(type));
  return affine_einsum(g, e, operands, at).add();
}

}  // namespace gspmd::detail
