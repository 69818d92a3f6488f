// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/program/array.hpp"

namespace gspmd {
namespace detail {

/// Returns the text of one element. A floating-point number has 6 significant digits, as in std::cout.
template <class T>
std::string printed_element(const T& x) {
  if constexpr (std::is_same_v<T, bool>) {
    return x ? "true" : "false";
  } else if constexpr (is_float_element<T>) {
    char number[32];
    std::snprintf(number, sizeof number, "%.6g", static_cast<double>(x));
    return number;
  } else if constexpr (is_complex_element<T>) {
    const std::string imaginary = printed_element(x.imag());
    return printed_element(x.real()) + (imaginary[0] == '-' ? "" : "+") + imaginary + "i";
  } else {
    static_assert(std::is_integral_v<T>, "gspmd: the elements of this array have a type of your own; print them one by one");
    return std::to_string(x);
  }
}

/// Writes the brackets of an array. Two runs are required: the first run finds the width of the elements.
class array_lines {
 public:
  using cell = std::string (*)(const void* elements, std::int64_t i);
  array_lines(const extents& shape, const void* elements, cell of) : shape_(shape), elements_(elements), of_(of) {
    std::int64_t size = 1;
    for (const auto e : shape) size *= e;
    is_long_ = size > 1000;
  }
  [[nodiscard]] std::string run() {
    add(0, 0);
    text_.clear();
    add(0, 0);
    return text_;
  }

 private:
  static constexpr std::int64_t edge = 3;  // the indices at each end of a long dim that are printed

  void add(int dim, std::int64_t first) {
    if (dim == shape_.count) {
      const auto element = of_(elements_, first);
      width_ = std::max(width_, element.size());
      text_.append(width_ - element.size(), ' ') += element;
      return;
    }
    const auto extent = shape_[dim];
    text_ += '[';
    for (std::int64_t i = 0; i < extent; ++i) {
      if (i > 0) separate(dim);
      if (is_long_ && i == edge && extent > 2 * edge) {
        text_ += "...";
        separate(dim);
        i = extent - edge;
      }
      add(dim + 1, first * extent + i);
    }
    text_ += ']';
  }
  void separate(int dim) {
    const auto inner = static_cast<std::size_t>(shape_.count - 1 - dim);
    if (inner == 0) text_ += ' ';
    else text_.append(inner, '\n').append(static_cast<std::size_t>(dim) + 1, ' ');
  }

  const extents& shape_;
  const void* elements_;
  cell of_;
  bool is_long_ = false;
  std::size_t width_ = 0;
  std::string text_;
};

}  // namespace detail

/// Returns the elements of an array as text, in the form of NumPy: brackets for each dim and one line for each row. If
/// the array has more than 1,000 elements, only the first and last 3 indices of each dim are printed.
///
/// **Example.**
///
///     std::cout << x << '\n';          // [[1 2]
///     std::puts(to_string(x).c_str());  //  [3 4]]
template <class T>
[[nodiscard]] std::string to_string(const array<T>& x) {
  const auto element = [](const void* elements, std::int64_t i) {
    return detail::printed_element(static_cast<const T*>(elements)[i]);
  };
  return detail::array_lines(x.shape(), x.data(), element).run();
}

template <class T>
  requires(sizeof(T) > 0)
struct detail::array_printer<T> {
  static constexpr bool is_included = true;
  template <class Stream>
  static void print(Stream& out, const array<T>& x) {
    out << to_string(x);
  }
};

}  // namespace gspmd
