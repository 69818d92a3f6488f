// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// A text that is built at compile time or at run time. std::string is not constexpr with Clang and libstdc++ 12, and
/// std::vector is not constexpr with -D_GLIBCXX_DEBUG.
class text {
 public:
  constexpr text() = default;
  constexpr text(std::string_view s) { *this << s; }
  constexpr text(const char* s) { *this << std::string_view(s); }

  constexpr text& operator<<(std::string_view s) {
    for (const char c : s) chars_.push_back(c);
    return *this;
  }
  constexpr text& operator<<(const char* s) { return *this << std::string_view(s); }
  constexpr text& operator<<(char c) {
    chars_.push_back(c);
    return *this;
  }
  constexpr text& operator<<(std::int64_t n) {
    char digits[20]{};
    int count = 0;
    auto rest = n < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n);
    do {
      digits[count++] = static_cast<char>('0' + static_cast<int>(rest % 10));
      rest /= 10;
    } while (rest != 0);
    if (n < 0) chars_.push_back('-');
    while (count > 0) chars_.push_back(digits[--count]);
    return *this;
  }
  constexpr text& operator<<(int n) { return *this << static_cast<std::int64_t>(n); }
  constexpr text& operator<<(const text& other) { return *this << other.view(); }

  [[nodiscard]] constexpr std::string_view view() const { return {chars_.data(), chars_.size()}; }
  [[nodiscard]] constexpr bool empty() const { return chars_.empty(); }

 private:
  vec<char> chars_;
};

/// Returns a shape as text, for example `[64,512]`.
template <class Extents>
constexpr text shape_text(const Extents& shape) {
  text t("[");
  for (int i = 0; i < shape.size(); ++i) {
    if (i > 0) t << ',';
    t << static_cast<std::int64_t>(shape[i]);
  }
  t << ']';
  return t;
}

/// Returns the first dim whose extents differ, to append to two shapes: `; dim 1 differs`. Returns an empty text if the
/// shapes have one dim or different numbers of dims.
template <class Extents>
constexpr text differing_dim_text(const Extents& a, const Extents& b) {
  for (int d = 0; a.size() > 1 && a.size() == b.size() && d < static_cast<int>(a.size()); ++d)
    if (a.begin()[d] != b.begin()[d]) return text("; dim ") << static_cast<std::int64_t>(d) << " differs";
  return {};
}

}  // namespace gspmd::detail
