// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/support/inline_vec.hpp"

namespace gspmd::detail {

/// One loop over several buffers: its number of iterations, and the change of each buffer's offset per iteration.
template <int Buffers>
struct strided_loop {
  std::int64_t extent = 1;
  std::int64_t stride[Buffers]{};
  friend constexpr bool operator==(const strided_loop&, const strided_loop&) = default;
};

/// Visits every combination of the indices of some loops, the last loop fastest. Without loops there is one
/// combination. This is an object and not a function with a body, so it is compiled once and not for every body:
///
///     for (odometer<2> at(loops, count); at.is_there; at.step()) copy(out + at.offset[1], in + at.offset[0]);
template <int Buffers>
struct odometer {
  std::int64_t offset[Buffers]{};
  bool is_there = true;

  odometer(const strided_loop<Buffers>* loops, int count) : loops_(loops), count_(count) {
    for (int i = 0; i < count; ++i) {
      index_[i] = 0;
      if (loops[i].extent <= 0) is_there = false;
    }
  }
  void step() {
    if (count_ > 0) advance();
    else is_there = false;
  }

 private:
  [[gnu::noinline]] void advance() {
    for (int i = count_ - 1; i >= 0; --i) {
      const auto& loop = loops_[i];
      if (++index_[i] < loop.extent) {
        for (int b = 0; b < Buffers; ++b) offset[b] += loop.stride[b];
        return;
      }
      for (int b = 0; b < Buffers; ++b) offset[b] -= loop.stride[b] * (loop.extent - 1);
      index_[i] = 0;
    }
    is_there = false;
  }

  const strided_loop<Buffers>* loops_;
  int count_;
  std::int64_t index_[2 * max_rank];
};

}  // namespace gspmd::detail
