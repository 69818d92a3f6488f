// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/external/ghosts.hpp"

/// Blocks with ghost layers, as in a user's own code.
namespace ghosted {

/// A block of a device in the test's own memory: its elements, layers around them, and a gap after each row.
template <class T>
struct block_of {
  std::vector<T> memory;
  gspmd::detail::extents begin, held, low, shape, strides;

  block_of(const gspmd::detail::mesh_shape& mesh, const gspmd::detail::planned_value& v,
           const gspmd::detail::given_layers& around, int device, T everywhere) {
    const auto at = mesh.coordinates_of(device);
    for (int d = 0; d < v.global.count; ++d) {
      const auto range = gspmd::detail::dim_range(mesh, v.global, v.layout, d, at);
      begin.push_back(range.begin);
      held.push_back(range.size());
      low.push_back(around.is_given ? around.low[d] : 0);
      shape.push_back(range.size() + (around.is_given ? around.low[d] + around.high[d] : 0));
    }
    strides = shape;
    std::int64_t stride = 1;
    for (int d = shape.count - 1; d >= 0; --d) {
      strides[d] = stride;
      stride *= shape[d] + device + 2;
    }
    memory.assign(static_cast<std::size_t>(stride), everywhere);
  }
  gspmd::ghosted_view<T> view() { return gspmd::ghosted_view<T>(gspmd::strided_view<T>(memory.data(), shape, strides)); }
  /// Calls visit(element, its position in the whole array) for the elements that the device holds.
  template <class Visit>
  void each(const gspmd::detail::extents& global, Visit visit) {
    if (gspmd::detail::elements(held) == 0) return;
    gspmd::detail::extents i(held.count, 0);
    for (;;) {
      std::int64_t at = 0, whole = 0;
      for (int d = 0; d < held.count; ++d) {
        at += (i[d] + low[d]) * strides[d];
        whole = whole * global[d] + begin[d] + i[d];
      }
      visit(memory[static_cast<std::size_t>(at)], whole);
      int d = held.count - 1;
      for (; d >= 0 && ++i[d] == held[d]; --d) i[d] = 0;
      if (d < 0) return;
    }
  }
};

template <class T>
T number(std::int64_t i) {
  return static_cast<T>((i * i * 7 + 3 * i) % 23 - 9);
}

}  // namespace ghosted
