// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>

#include "gspmd/detail/support/foreign_names.hpp"

#define GSPMD_PLAIN_DIM \
  "gspmd: the dimension is along(0) and not a plain integer; write it after the number, as in shift(x, -1, along(0))"

namespace gspmd {
namespace detail {

/// Reports a plain integer that is passed as a dim.
template <class Plain>
consteval bool reports_plain_dim() {
  static_assert(written_so<Plain>, GSPMD_PLAIN_DIM);
  return false;
}
template <class Dim> concept integral_dim = std::integral<Dim> && !std::same_as<Dim, bool>;

}  // namespace detail

/// The dim of a function that also takes another integer, as an argument after that integer. A dim below 0 counts from
/// the end.
///
/// **Errors.** Compile error if a plain integer is passed as the dim.
/// **Example.**
///     roll(x, 1, along(-1))      valid_range(device, along(0))
struct along {
  template <detail::integral_dim Dim>
  explicit constexpr along(Dim d) : dim(static_cast<std::int64_t>(d)) {}
  template <std::integral Plain>
#ifdef __clang__
  constexpr along(Plain d) : dim(static_cast<std::int64_t>(d)) {
    static_assert(detail::written_so<Plain>, GSPMD_PLAIN_DIM);
  }
#else  // GCC instantiates an exception specification at the line of the call, a body when it evaluates the program
  constexpr along(Plain d) noexcept(detail::reports_plain_dim<Plain>()) : dim(static_cast<std::int64_t>(d)) {
  }
#endif

  std::int64_t dim;
};

namespace detail {

/// Converts a dim that is counted from the end, as in NumPy: (-1, 3) -> 2. A number outside of the range stays outside,
/// so the operator refuses it.
constexpr int counted_dim(std::int64_t dim, int rank) {
  constexpr std::int64_t beyond = 1 << 30;  // outside of the range of dims, and an int
  if (dim < 0 && dim >= -rank) dim += rank;
  return static_cast<int>(dim > beyond ? beyond : dim < -beyond ? -beyond : dim);
}
constexpr int counted_dim(along d, int rank) { return counted_dim(d.dim, rank); }

}  // namespace detail
}  // namespace gspmd

#undef GSPMD_PLAIN_DIM
