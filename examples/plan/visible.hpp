// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

/// Texts of the user's, and of files, on a terminal.
namespace plan_tool {

/// The character of a text that begins at a byte. What is no UTF-8 is a character of one byte.
struct character {
  std::size_t bytes = 1;
  char32_t code = 0;
  bool is_utf8 = false;
};
inline character character_at(std::string_view text, std::size_t at) {
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

/// Whether a terminal obeys a character instead of showing it: control characters, ends of lines, and marks that turn the
/// direction of the text around them.
inline bool is_command(const character& c) {
  const auto in = [&](char32_t first, char32_t last) { return c.code >= first && c.code <= last; };
  return !c.is_utf8 || in(0, 0x1F) || in(0x7F, 0x9F) || c.code == 0x61C || in(0x200E, 0x200F) || in(0x2028, 0x202E) ||
         in(0x2066, 0x2069);
}
inline bool has_command(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto c = character_at(text, i);
    if (is_command(c)) return true;
    i += c.bytes;
  }
  return false;
}

/// At most `most` bytes of a text, with what a terminal would obey as `\x1B` or `\u202E`.
inline std::string visible(std::string_view text, std::size_t most = std::string_view::npos) {
  std::string t;
  for (std::size_t i = 0; i < text.size();) {
    if (i >= most) return t + "...";
    const auto c = character_at(text, i);
    if (is_command(c)) {
      char code[12];
      std::snprintf(code, sizeof code, c.code < 0x100 ? "\\x%02X" : "\\u%04X", static_cast<unsigned>(c.code));
      t += code;
    } else {
      t += text.substr(i, c.bytes);
    }
    i += c.bytes;
  }
  return t;
}

}  // namespace plan_tool
