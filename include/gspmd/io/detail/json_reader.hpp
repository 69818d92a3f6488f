// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Returns true if a text is valid UTF-8 (RFC 3629): complete sequences, shortest encodings, no surrogates.
inline bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t k) { return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0U; };
    const auto first = byte(0), second = byte(1);
    std::size_t length = 1;
    if (first >= 0xc2 && first <= 0xdf) length = 2;
    else if (first >= 0xe0 && first <= 0xef) length = 3;
    else if (first >= 0xf0 && first <= 0xf4) length = 4;
    else if (first >= 0x80) return false;
    for (std::size_t k = 1; k < length; ++k)
      if ((byte(k) & 0xc0U) != 0x80U) return false;
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
        (first == 0xf4 && second > 0x8f))
      return false;
    i += length;
  }
  return true;
}

/// Reads JSON (RFC 8259) from front to back. The caller calls the function for the expected value. Throws gspmd::error
/// if the text differs.
class json_reader {
 public:
  explicit json_reader(std::string_view text) : text_(text) {}

  [[nodiscard]] bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) unexpected();
  }
  void expect_end() {
    skip_space();
    if (at_ != text_.size()) unexpected();
  }
  [[noreturn]] void unexpected() const { throw error("has an unexpected character at byte " + std::to_string(at_)); }

  /// Calls `f(key)` for each member of an object; `f` reads the value.
  template <class F>
  void object(F f) {
    expect('{');
    if (accept('}')) return;
    do {
      const auto key = string();
      expect(':');
      f(key);
    } while (accept(','));
    expect('}');
  }
  /// Calls `f()` for each item of a list.
  template <class F>
  void list(F f) {
    expect('[');
    if (accept(']')) return;
    do f();
    while (accept(','));
    expect(']');
  }
  std::string string() {
    expect('"');
    std::string s;
    for (;;) {
      const char c = next();
      if (c == '"') return s;
      if (static_cast<unsigned char>(c) < 32) unexpected();
      if (c == '\\') escape(s);
      else s += c;
    }
  }
  /// Reads a number of elements or bytes: an integer from 0 to 2^62.
  std::int64_t count() {
    skip_space();
    const auto begin = at_;
    std::int64_t n = 0;
    for (; is_digit(); ++at_) {
      if (n > std::int64_t{1} << 58) unexpected();
      n = 10 * n + (text_[at_] - '0');
    }
    if (at_ == begin || (text_[begin] == '0' && at_ > begin + 1)) unexpected();
    if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) unexpected();
    return n;
  }
  /// Skips a value of any kind.
  void skip(int depth = 0) {
    skip_space();
    if (depth > 64 || at_ >= text_.size()) unexpected();
    const char c = text_[at_];
    if (c == '{') {
      object([&](const std::string&) { skip(depth + 1); });
    } else if (c == '[') {
      list([&] { skip(depth + 1); });
    } else if (c == '"') {
      static_cast<void>(string());
    } else {
      const auto begin = at_;
      while (at_ < text_.size() && (is_digit() || (text_[at_] >= 'a' && text_[at_] <= 'z') || text_[at_] == '-' ||
                                    text_[at_] == '+' || text_[at_] == '.' || text_[at_] == 'E'))
        ++at_;
      if (at_ == begin) unexpected();
    }
  }

 private:
  [[nodiscard]] bool is_digit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }
  char next() {
    if (at_ >= text_.size()) unexpected();
    return text_[at_++];
  }
  void escape(std::string& s) {
    constexpr std::string_view names = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
    const char c = next();
    if (c != 'u') {
      const auto k = names.find(c);
      if (k == std::string_view::npos) unexpected();
      s += meant[k];
      return;
    }
    auto code = four_digits();
    if (code >= 0xd800 && code < 0xdc00) {  // the first half of a code point above 16 bits
      if (next() != '\\' || next() != 'u') unexpected();
      const auto low = four_digits();
      if (low < 0xdc00 || low > 0xdfff) unexpected();
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code <= 0xdfff) {
      unexpected();
    }
    const auto add = [&](std::uint32_t bits) { s += static_cast<char>(bits); };
    if (code < 0x80) return add(code);
    if (code < 0x800) {
      add(0xc0 | code >> 6);
    } else {
      if (code < 0x10000) {
        add(0xe0 | code >> 12);
      } else {
        add(0xf0 | code >> 18);
        add(0x80 | (code >> 12 & 0x3f));
      }
      add(0x80 | (code >> 6 & 0x3f));
    }
    add(0x80 | (code & 0x3f));
  }
  std::uint32_t four_digits() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = next();
      const auto digit = std::string_view("0123456789abcdef").find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
      if (digit == std::string_view::npos) unexpected();
      code = code << 4 | static_cast<std::uint32_t>(digit);
    }
    return code;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace gspmd::detail
