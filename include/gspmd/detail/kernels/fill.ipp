// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/kernels/fill.hpp"

namespace gspmd::detail {

template <class Once>
void fill_with_identity(const planned_value& v, monoid kind, void* shard) {
  if (is_own(v.type)) {  // the identity of an own type is T{}, whose bits are 0
    std::memset(shard, 0, static_cast<std::size_t>(elements(v.local) * bytes_of(v.type)));
    return;
  }
  const std::int64_t count = elements(v.local) * (is_complex(v.type) ? 2 : 1);
  with_element_type(part_of(v.type), [&](auto element) {
    using T = decltype(element);
    auto nothing = identity<T>(kind);
    if constexpr (is_float_element<T> || std::is_floating_point_v<T>)
      if (kind == monoid::add) nothing = T(-0.0F);
    std::fill_n(static_cast<T*>(shard), count, nothing);
  });
}
GSPMD_COMPILED_ONCE(void fill_with_identity<once>(const planned_value&, monoid, void*));

}  // namespace gspmd::detail
