// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/ops/reduce.hpp"

/// Element types and monoids that are known at run time: `dtype` and `monoid`.
namespace gspmd {

/// The bytes of an element: bytes_of(dtype::f32) is 4.
using detail::bytes_of;
/// Whether a monoid has a meaning for a type: no `and` of floats, no sum of bools.
using detail::is_defined;
/// Whether elements are complex: c64, c128. They are floats too.
using detail::is_complex;
using detail::is_floating;
/// `f32`, `add`, `all_reduce`: the name of a type, a monoid or a kind of collective in texts.
using detail::name_of;
/// The type of the real and the imaginary part of a complex type; of a real type it is that type.
using detail::part_of;
/// Calls `f(T{})` with the C++ type of a dtype; with_real_type, where that is no complex one.
using detail::with_element_type;
using detail::with_real_type;

/// How many element types there are: static_cast<dtype>(0) is the first one.
inline constexpr std::size_t dtype_count = detail::element_type_count;

/// The most dims that a tensor has.
inline constexpr int max_rank = detail::max_rank;

}  // namespace gspmd
