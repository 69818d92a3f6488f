// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// Texts of single elements of any type, for error messages. It is a template, so programs that compare no elements
/// instantiate nothing.
template <class = once>
struct element_texts {
  /// Returns true if two elements are the same number. Zeros of both signs are the same number, and so are any two
  /// NaNs.
  static bool is_one_number(dtype type, const void* a, const void* b) {
    bool is_one = std::memcmp(a, b, static_cast<std::size_t>(bytes_of(type))) == 0;
    if (is_one || is_own(type)) return is_one;
    with_element_type(part_of(type), [&]<class T>(T) {
      if constexpr (is_float_element<T>) {
        is_one = true;
        for (std::int64_t k = 0; k < bytes_of(type) / std::int64_t{sizeof(T)}; ++k) {
          T x{}, y{};
          std::memcpy(&x, static_cast<const T*>(a) + k, sizeof x);
          std::memcpy(&y, static_cast<const T*>(b) + k, sizeof y);
          const auto p = static_cast<double>(x), q = static_cast<double>(y);
          is_one = is_one && !(p < q) && !(p > q) && (p != p) == (q != q);
        }
      }
    });
    return is_one;
  }
  [[gnu::cold]] static std::string of(dtype type, const void* element) {
    if (is_own(type)) return "other bytes";
    std::string t;
    with_element_type(part_of(type), [&]<class T>(T) {
      for (std::int64_t k = 0; k < bytes_of(type) / std::int64_t{sizeof(T)}; ++k) {
        T x{};
        std::memcpy(&x, static_cast<const T*>(element) + k, sizeof x);
        if constexpr (is_float_element<T>) {
          char number[32];
          std::snprintf(number, sizeof number, std::is_same_v<T, double> ? "%.17g" : "%.9g", static_cast<double>(x));
          t += (k > 0 ? " + i " : "") + std::string(number);
        } else if constexpr (std::is_same_v<T, bool>) {
          t += x ? "true" : "false";
        } else if constexpr (!is_complex_element<T>) {
          t += std::to_string(x);
        }
      }
    });
    return t;
  }
};

}  // namespace gspmd::detail
