// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// Returns a text in quotes, escaped for JSON.
inline std::string json_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 32) {
      result += byte < 16 ? "\\u000" : "\\u001";
      result += "0123456789abcdef"[byte & 0xfU];
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

template <class List, class F>
std::string json_list(const List& list, const char* between, F text_of) {
  std::string result = "[";
  for (const auto& item : list) {
    if (result.size() > 1) result += between;
    result += text_of(item);
  }
  return result + ']';
}

}  // namespace gspmd::detail
