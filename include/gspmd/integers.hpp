// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

namespace gspmd {

/// Extents, dims or other integers as operators take them: written out, or a vector, array or span of std::int64_t that is known
/// when the program is built. It is read by the call that gets it and not kept.
///
///     reshape(x, {8, -1})      const std::vector<std::int64_t> shape = ...;  reshape(x, shape)
struct integers : std::span<const std::int64_t> {
  using span::span;
  constexpr integers(std::initializer_list<std::int64_t> list)
      : span(list.begin(), list.size()) {}  // NOLINT: implicit on purpose
};

}  // namespace gspmd
