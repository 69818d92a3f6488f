// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/ops/reduce.hpp"

/// Element types and monoids as run-time values: `dtype` and `monoid`.
namespace gspmd {

/// Returns the bytes of an element: bytes_of(dtype::f32) is 4.
using detail::bytes_of;
/// Returns true if the monoid is defined for the type. `and` is not defined for floats, and a sum is not defined for
/// bools.
using detail::is_defined;
/// Returns true for complex types (c64, c128).
using detail::is_complex;
/// Returns true for floating-point types, which include the complex types.
using detail::is_floating;
/// Returns the name of a type, a monoid or a kind of collective in texts: `f32`, `add`, `all_reduce`.
using detail::name_of;
/// Returns the type of the real and the imaginary part of a complex type. Returns a real type unchanged.
using detail::part_of;
/// Calls `f(T{})` with the C++ type of a dtype.
using detail::with_element_type;
/// The same, but does nothing if the type is complex.
using detail::with_real_type;

/// The number of element types. The first one is static_cast<dtype>(0).
inline constexpr std::size_t dtype_count = detail::element_type_count;

/// The largest number of dims of a tensor.
inline constexpr int max_rank = detail::max_rank;

}  // namespace gspmd
