// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/support/inline_vec.hpp"

namespace gspmd::detail {

/// One loop over several buffers at once: how often it runs, and how far each buffer's offset moves per step.
template <int Buffers>
struct strided_loop {
  std::int64_t extent = 1;
  std::int64_t stride[Buffers]{};
  friend constexpr bool operator==(const strided_loop&, const strided_loop&) = default;
};

/// Calls body(offsets) for every combination of the loops, the last one fastest. No loops: once.
template <int Buffers, class Body>
inline void for_each_offset(const strided_loop<Buffers>* loops, int count, Body&& body) {
  std::int64_t offset[Buffers]{};
  std::int64_t index[2 * max_rank];
  for (int i = 0; i < count; ++i) {
    if (loops[i].extent <= 0) return;
    index[i] = 0;
  }
  for (;;) {
    body(static_cast<const std::int64_t*>(offset));
    int i = count - 1;
    for (; i >= 0; --i) {
      const auto& loop = loops[i];
      if (++index[i] < loop.extent) {
        for (int b = 0; b < Buffers; ++b) offset[b] += loop.stride[b];
        break;
      }
      for (int b = 0; b < Buffers; ++b) offset[b] -= loop.stride[b] * (loop.extent - 1);
      index[i] = 0;
    }
    if (i < 0) return;
  }
}

}  // namespace gspmd::detail
