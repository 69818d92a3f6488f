// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gspmd/windows/detail/window_step.hpp"

/// Reductions of windows and their gradients. Each thread of a device computes some results.
namespace gspmd::detail {

/// Returns the dim of the results that threads share: the first dim with eight indices for each thread, because the
/// parts of an outer dim are contiguous. If no dim is so long, returns the longest dim.
inline int shared_dim_of_windows(const extents& out, int parts) {
  int longest = 0;
  for (int d = 0; d < out.count; ++d) {
    if (out[d] >= 8 * parts) return d;
    if (out[d] > out[longest]) longest = d;
  }
  return longest;
}
inline std::int64_t work_of_windows(const window_reduction& w) {
  std::int64_t work = elements(w.out);
  for (const auto& along : w.windows) work *= along.window.size;
  return w.out.count == 0 ? 0 : work;
}

struct window_part {
  prepared_window_reduction whole;
  int part, parts, dim;
  std::int64_t step = 1;  // distance of adjacent results in the tile, along `dim`

  window_part(const prepared_window_reduction& all, int k, int count)
      : whole(all), part(k), parts(count), dim(shared_dim_of_windows(all.windows->out, count)) {
    for (const auto& along : all.windows->windows)
      if (along.dim == dim) step = along.window.stride;
  }
  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    const window_reduction& w = *whole.windows;
    std::int64_t valid[max_rank];
    kernels::read_existing(p, s, device, valid);
    const part_of_units own(std::max(valid[dim], std::int64_t{0}), part, parts);
    valid[dim] = own.last - own.first;
    const auto bytes = whole.kernel->elem_bytes;
    reduce_windows(*whole.kernel, w, valid,
                   bytes_from(device.read(p.operand(s, 0).where), own.first * step * step_of_dim(w.in, dim) * bytes),
                   static_cast<std::byte*>(device.write(p.result(s).where)) + own.first * step_of_dim(w.out, dim) * bytes);
  }
  void end(const plan_view& p, const plan_step& s, const device_memory& device) const { clear_padding(p, p.result(s), device); }
};

/// Gradients are shared along the first dim, the batch, because windows along other dims add to the same elements. If
/// the first dim has windows, one thread runs the step.
inline std::int64_t work_of_selection(const window_selection& w) {
  std::int64_t work = 2 * elements(w.by);
  for (const auto& along : w.windows) work *= along.dim == 0 ? 0 : along.size;
  return w.out.count == 0 || w.out[0] < 2 ? 0 : work;
}
struct selection_part {
  prepared_window_selection whole;
  window_selection some;
  part_of_units own;

  selection_part(const prepared_window_selection& all, int k, int count)
      : whole(all), some(*all.windows), own(some.out[0], k, count) {
    for (auto* const shape : {&some.in, &some.by, &some.out}) (*shape)[0] = own.last - own.first;
  }
  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    std::int64_t valid[max_rank];
    kernels::read_existing(p, s, device, valid);
    valid[0] = std::clamp(valid[0] - own.first, std::int64_t{0}, some.out[0]);
    const auto bytes = own.first * bytes_of(p.result(s).type);
    whole.select(some, valid, bytes_from(device.read(p.operand(s, 0).where), bytes * step_of_dim(some.in, 0)),
                 bytes_from(device.read(p.operand(s, 1).where), bytes * step_of_dim(some.by, 0)),
                 static_cast<std::byte*>(device.write(p.result(s).where)) + bytes * step_of_dim(some.out, 0));
  }
};

/// Pools, and gradients of maximum and minimum pools.
struct windows_by_parts : prepared_by_parts<kernels::reduce_window, prepared_window_reduction, window_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    return work_of_windows(description_of<kernels::reduce_window>(p, s));
  }
};
struct selections_by_parts : prepared_by_parts<kernels::select_and_scatter, prepared_window_selection, selection_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    return work_of_selection(description_of<kernels::select_and_scatter>(p, s));
  }
};

}  // namespace gspmd::detail
