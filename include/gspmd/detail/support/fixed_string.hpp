// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "gspmd/detail/support/language.hpp"

namespace gspmd {

/// A string literal as a template argument: `einsum<"bd,df->bf">`, `axis<"data", 2>`.
template <std::size_t N>
struct fixed_string {
  char chars[N]{};

  consteval fixed_string(const char (&literal)[N]) {  // NOLINT: implicit on purpose
    for (std::size_t i = 0; i < N; ++i) chars[i] = literal[i];
  }
  /// Takes the first N - 1 characters of a computed text.
  constexpr explicit fixed_string(std::string_view computed) {
    for (std::size_t i = 0; i + 1 < N && i < computed.size(); ++i) chars[i] = computed[i];
  }
  [[nodiscard]] constexpr std::string_view view() const { return {chars, N - 1}; }
};

}  // namespace gspmd
