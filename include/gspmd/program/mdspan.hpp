// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Arrays as std::mdspan. The header is empty unless the standard library has std::mdspan (C++23).
#include <version>

#ifdef __cpp_lib_mdspan

#include <cstddef>
#include <cstdint>
#include <mdspan>
#include <span>

#include "gspmd/program/array.hpp"

namespace gspmd {
namespace detail {

template <std::size_t Rank, class T, class Array>
std::mdspan<T, std::dextents<std::int64_t, Rank>> mdspan_of(Array& x) {
  if (x.shape().count != static_cast<int>(Rank)) refuse_indices(x.shape(), Rank);
  return {x.data(), std::dextents<std::int64_t, Rank>(std::span<const std::int64_t, Rank>(x.shape().begin(), Rank))};
}

}  // namespace detail

/// Returns a view of the elements of an array. The array must outlive the view.
///
/// **Errors.** Throws gspmd::error if the array has another number of dims.
/// **Example.**
///
///     auto u = as_mdspan<2>(x);
///     u[i, j] = 1;
template <std::size_t Rank, class T>
[[nodiscard]] std::mdspan<T, std::dextents<std::int64_t, Rank>> as_mdspan(array<T>& x) {
  return detail::mdspan_of<Rank, T>(x);
}
template <std::size_t Rank, class T>
[[nodiscard]] std::mdspan<const T, std::dextents<std::int64_t, Rank>> as_mdspan(const array<T>& x) {
  return detail::mdspan_of<Rank, const T>(x);
}

}  // namespace gspmd

#endif
