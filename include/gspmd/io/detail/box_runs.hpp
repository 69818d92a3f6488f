// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/transport/box.hpp"

namespace gspmd::detail {

/// Calls `f(in, out, bytes)` for each run of bytes of a box that is contiguous in both buffers, in the order of the
/// buffers.
template <class F>
void for_each_run(const placed_box& placed, std::int64_t elem_bytes, F f) {
  for (box_walk rows(placed); rows.is_there; rows.step())
    for (std::int64_t i = 0; i < rows.count; ++i)
      f((rows.in + i * rows.in_step) * elem_bytes, (rows.out + i * rows.out_step) * elem_bytes, rows.row * elem_bytes);
}

}  // namespace gspmd::detail
