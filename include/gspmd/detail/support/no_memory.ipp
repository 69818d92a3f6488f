// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/no_memory.hpp"

namespace gspmd::detail {

template <class Once>
[[gnu::cold]] std::string no_memory_text(std::int64_t bytes, std::string_view what) {
  return "there is no memory for " + std::string(what) + ": " + std::to_string(bytes) + " bytes were requested";
}
GSPMD_COMPILED_ONCE(std::string no_memory_text<once>(std::int64_t, std::string_view));

}  // namespace gspmd::detail
