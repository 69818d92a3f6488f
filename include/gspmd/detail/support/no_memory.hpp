// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <string_view>

#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

template <class = once>
[[gnu::cold]] std::string no_memory_text(std::int64_t bytes, std::string_view what);

/// A failed allocation: the number of bytes and their purpose. A caller with the device and the plan adds them and
/// throws an error.
struct no_memory : error {
  no_memory(std::int64_t bytes, std::string_view what) : error(no_memory_text(bytes, what)) {}
};

/// Returns the result of `take`, which allocates memory of the size of a tensor. If `take` throws std::bad_alloc,
/// throws no_memory with `what()`.
template <class Take, class What>
auto taken(std::int64_t bytes, Take take, What what) {
  try {
    return take();
  } catch (const std::bad_alloc&) {
    throw no_memory(bytes, what());
  }
}

/// Allocates elements without initialising them.
template <class T>
T* new_elements(std::int64_t count, const char* what) {
  return taken(
      count * static_cast<std::int64_t>(sizeof(T)), [&] { return new T[static_cast<std::size_t>(count)]; }, [&] { return what; });
}

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/support/no_memory.ipp"
#endif
