// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/box.hpp"

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

template <class Once>
[[gnu::noinline]] void transpose_box(void* to, const void* from, const placed_box& placed, int cols, std::int64_t bytes,
                                     bool streaming) {
  placed_box planes = placed;  // one element of each plane
  planes.box.size[0] = planes.box.size[cols] = 1;
  with_bits(bytes, [&](auto bits) {
    using element = decltype(bits);
    const auto& box = placed.box;
    for (box_walk at(planes, 0); at.is_there; at.step())
      transpose_plane(box.size[0], box.size[cols], static_cast<const element*>(from) + at.in, box.in_stride[0],
                      static_cast<element*>(to) + at.out, box.out_stride[cols], streaming);
  });
}
GSPMD_COMPILED_ONCE(void transpose_box<once>(void*, const void*, const placed_box&, int, std::int64_t, bool));

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
