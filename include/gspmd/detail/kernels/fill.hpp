// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// Fills a shard with the identity element of `kind`, as the partial value of a device that contributes nothing. The
/// identity of a sum is -0.0, because adding 0.0 would change -0.0 to 0.0.
template <class = once>
void fill_with_identity(const planned_value& v, monoid kind, void* shard);

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/kernels/fill.ipp"
#endif
