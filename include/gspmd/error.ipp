// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/error.hpp"

namespace gspmd::detail {

template <class Once>
[[gnu::cold]] std::string error_sentence(std::string& text, int rank, std::string& op, const char* file, int line) {
  constexpr std::size_t most_characters = 16384;
  text = printable(text, most_characters);
  op = printable(op);
  std::string context = op;
  const auto add = [&context](const std::string& words) {
    if (!context.empty()) context += ' ';
    context += words;
  };
  if (file != nullptr) add(line > 0 ? "at " + std::string(file) + ':' + std::to_string(line) : '`' + std::string(file) + '`');
  if (rank >= 0) add("on rank " + std::to_string(rank));
  return "gspmd: " + (context.empty() ? text : context + ": " + text);
}
GSPMD_COMPILED_ONCE(std::string error_sentence<once>(std::string&, int, std::string&, const char*, int));

}  // namespace gspmd::detail
