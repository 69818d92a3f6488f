// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <new>
#include <string>

#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Memory that cannot be had: how much was asked for, and for what. Whoever knows the device and the plan adds them on the way up, and
/// throws an error.
struct no_memory : error {
  no_memory(std::int64_t bytes, const std::string& what)
      : error("there is no memory for " + what + ": " + std::to_string(bytes) + " bytes were asked for") {}
};

/// Returns what `take` does, which allocates memory of the size of a tensor. `what()` says for what; it is called where there is none.
template <class Take, class What>
auto taken(std::int64_t bytes, Take take, What what) {
  try {
    return take();
  } catch (const std::bad_alloc&) {
    throw no_memory(bytes, what());
  }
}

/// Elements that hold anything.
template <class T>
T* new_elements(std::int64_t count, const char* what) {
  return taken(
      count * static_cast<std::int64_t>(sizeof(T)), [&] { return new T[static_cast<std::size_t>(count)]; }, [&] { return what; });
}

}  // namespace gspmd::detail
