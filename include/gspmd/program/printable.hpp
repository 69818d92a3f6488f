// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gspmd/detail/support/language.hpp"

namespace gspmd {

namespace detail {

/// A character of a text: its length in bytes and its code point. A byte that is not UTF-8 counts as a character with
/// is_utf8 == false.
struct text_character {
  std::size_t bytes = 1;
  char32_t code = 0;
  bool is_utf8 = false;
};

inline text_character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto first = byte(at);
  if (first < 0x80) return {1, first, true};
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  char32_t code = first & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xC0U) != 0x80U) return {1, first, false};
    code = code << 6U | (byte(at + i) & 0x3FU);
  }
  constexpr char32_t least[] = {0x80, 0x800, 0x10000};
  if (first < 0xC2 || first > 0xF4 || code < least[bytes - 2]) return {1, first, false};
  return {bytes, code, true};
}

/// Returns true if a terminal interprets the character instead of showing it: control characters, line ends, and marks
/// that change the direction of text.
inline bool is_control(const text_character& c) {
  const auto in = [&](char32_t first, char32_t last) { return c.code >= first && c.code <= last; };
  return !c.is_utf8 || in(0, 0x1F) || in(0x7F, 0x9F) || c.code == 0x61C || in(0x200E, 0x200F) || in(0x2028, 0x202E) ||
         in(0x2066, 0x2069);
}

}  // namespace detail

/// Returns the text as a single line that is safe to print. Control characters become `\x1B` or `\u202E`, and other
/// UTF-8 is unchanged. A text of more than `most` bytes is cut at `most` and ends with `...`. Use it for names that
/// come from untrusted files.
///
/// **Example.**
///
///     for (const auto& t : read_safetensors_header(path).tensors) std::cout << printable(t.name) << '\n';
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t most = std::string_view::npos) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    if (i >= most) return result + "...";
    const auto c = detail::character_at(text, i);
    if (detail::is_control(c)) {
      result += c.code < 0x100 ? "\\x" : "\\u";
      for (int shift = c.code < 0x100 ? 4 : 12; shift >= 0; shift -= 4) result += digits[c.code >> shift & 0xFU];
    } else {
      result += text.substr(i, c.bytes);
    }
    i += c.bytes;
  }
  return result;
}

}  // namespace gspmd
