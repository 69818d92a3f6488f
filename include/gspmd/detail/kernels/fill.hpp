// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ir/plan.hpp"

namespace gspmd::detail {

/// Fills a shard with what changes nothing: terms of devices that have nothing to add. Of a sum it is -0.0, as 0.0 would make 0.0 of -0.0.
inline void fill_with_identity(const planned_value& v, monoid kind, void* shard) {
  const std::int64_t count = elements(v.local) * (is_complex(v.type) ? 2 : 1);
  with_element_type(part_of(v.type), [&](auto element) {
    using T = decltype(element);
    auto nothing = identity<T>(kind);
    if constexpr (is_float_element<T> || std::is_floating_point_v<T>)
      if (kind == monoid::add) nothing = T(-0.0F);
    std::fill_n(static_cast<T*>(shard), count, nothing);
  });
}

}  // namespace gspmd::detail
