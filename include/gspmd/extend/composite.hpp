// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/ops/composite.hpp"
#include "gspmd/ops/reduce.hpp"

/// The header for authors of composites. A composite is a function that calls other operators. It needs no struct.
/// docs/extending/composite.md adds a weighted mean as an example.
namespace gspmd::extend {

using detail::dim_list;            // the argument `dims` of a reduction: {0, 1}, 1, or {} for all dims
using detail::double_of_integers;  // converts integers and bool to double
using detail::one_call;            // names the composite in type errors
using detail::rounded_once;        // computes in float, and rounds the result to bf16 or f16

// `made(x.graph()->fail(at, "name", mistake::rank, "has no dims; give it one"), x)` reports an error. It returns a
// value that all operators accept without a second error.
using detail::made;
using detail::mistake;

}  // namespace gspmd::extend
