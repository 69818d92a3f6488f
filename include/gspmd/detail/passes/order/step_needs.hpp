// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/support/zeroed.hpp"

namespace gspmd::detail {

/// Steps and the buffers that they touch: the constraints of an order, and its cost. A buffer is in memory from the
/// first step that touches it to the last one. So an order and its reverse need the same memory.
struct step_needs {
  struct edge {
    int before = 0;
    int after = 0;
  };
  constexpr step_needs(int most_steps, int most_touched, int most_edges)
      : ints_(2 * most_steps + 1 + 3 * most_touched), longs_(most_steps + most_touched), edges_(most_edges) {
    touched_from = ints_.take(most_steps + 1);
    in_place = ints_.take(most_steps);
    ints_.take_each(most_touched, touched, is_given, is_kept);
    scratch = longs_.take(most_steps);
    bytes = longs_.take(most_touched);
    edges = edges_.take(most_edges);
  }
  /// Adds the next step. Calls of touch() for its buffers follow, the result first.
  constexpr int add_step(std::int64_t scratch_bytes, bool may_work_in_place) {
    scratch[steps] = scratch_bytes;
    in_place[steps] = may_work_in_place ? 1 : 0;
    touched_from[steps + 1] = touched_from[steps];
    return steps++;
  }
  constexpr int add_buffer(std::int64_t size, bool given, bool kept) {
    bytes[buffers] = size;
    is_given[buffers] = given ? 1 : 0;
    is_kept[buffers] = kept ? 1 : 0;
    return buffers++;
  }
  constexpr void touch(int buffer) { touched[touched_from[steps]++] = buffer; }
  constexpr void add_edge(int before, int after) {
    edges[edge_count].before = before;
    edges[edge_count++].after = after;
  }

  int steps = 0;
  int buffers = 0;
  int edge_count = 0;
  int* touched_from = nullptr;      // by step, and the end
  int* touched = nullptr;           // buffers, step by step, each once
  int* in_place = nullptr;          // by step: its first buffer, the result, may overwrite a buffer that dies here
  std::int64_t* scratch = nullptr;  // by step: bytes, while it runs
  std::int64_t* bytes = nullptr;    // by buffer
  int* is_given = nullptr;          // by buffer: exists before the first step
  int* is_kept = nullptr;           // by buffer: exists after the last step
  edge* edges = nullptr;

 private:
  zeroed<int> ints_;
  zeroed<std::int64_t> longs_;
  zeroed<edge> edges_;
};

/// Returns the most bytes in memory at any time.
///
///   x of 8 bytes, then y of 16 bytes from x, neither kept      24
constexpr std::int64_t peak_of(const step_needs& needs, const int* order) {
  zeroed<int> memory(2 * needs.buffers);
  int* const left = memory.take(needs.buffers);
  int* const is_open = memory.take(needs.buffers);
  for (int t = 0; t < needs.touched_from[needs.steps]; ++t) ++left[needs.touched[t]];
  std::int64_t now = 0;
  for (int b = 0; b < needs.buffers; ++b) {
    left[b] += needs.is_kept[b];
    is_open[b] = needs.is_given[b];
    if (is_open[b] != 0) now += needs.bytes[b];
  }
  std::int64_t peak = now;
  for (int k = 0; k < needs.steps; ++k) {
    const int s = order[k];
    const int first = needs.touched_from[s];
    std::int64_t closes = 0;
    std::int64_t result = -1;  // bytes, if it may overwrite an operand
    std::int64_t shared = 0;
    for (int t = first; t < needs.touched_from[s + 1]; ++t) {
      const int b = needs.touched[t];
      const bool opens = is_open[b] == 0;
      if (opens) now += needs.bytes[b];
      is_open[b] = 1;
      if (--left[b] == 0) closes += needs.bytes[b];
      if (t == first && opens && left[b] > 0 && needs.in_place[s] != 0) result = needs.bytes[b];
      if (t > first && !opens && left[b] == 0 && needs.bytes[b] == result) shared = result;
    }
    if (peak < now - shared + needs.scratch[s]) peak = now - shared + needs.scratch[s];
    now -= closes;
  }
  return peak;
}

}  // namespace gspmd::detail
