// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/run/parts/part_of_units.hpp"
#include "gspmd/detail/run/static_program.hpp"

namespace gspmd::detail {

/// The part of a box of a fused loop that a thread of a device computes: consecutive elements in row-major order.
/// Parts consist of whole rows if the loop has enough rows (cut_by_parts), otherwise of whole steps of
/// for_each_index. Each element is computed as one thread computes it.
///
///   [64, 256] by 2 threads     [0..32, 256]    [32..64, 256]
///   [3, 1000] by 2             [0..1, 1000] and [1..2, 0..472]     [1..2, 472..1000] and [2..3, 1000]
///   [100] by 2                 [0..64]         [64..100]
struct part_of_loop {
  /// Calls visit(box) for the boxes of this thread's part of `box`. `loop` has the planned extents, before the cut at
  /// the end of a device's data.
  template <class Visit>
  static void for_each(const device_memory& device, const extents& loop, const loop_box& box, Visit visit) {
    if (device.parts == 1) return visit(box);
    if (!box.any()) return;
    const extents size = box.size();
    const auto all = elements(size);
    const auto unit = size.count == 0 ? 1 : cut_by_parts(loop) != 0 ? for_each_index_step : size[size.count - 1];
    const part_of_units own((all + unit - 1) / unit, device.part, device.parts);
    const auto last = own.last * unit < all ? own.last * unit : all;
    for_each_box_of_range(size, own.first * unit, last, [&](loop_box part) {
      for (int d = 0; d < size.count; ++d) {
        part.begin[d] += box.begin[d];
        part.end[d] += box.begin[d];
      }
      visit(part);
    });
  }
};

}  // namespace gspmd::detail
