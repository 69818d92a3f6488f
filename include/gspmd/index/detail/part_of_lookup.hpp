// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gspmd/index/detail/index_step.hpp"

/// Gathers and scatters that the threads of a device share. In a gather each thread writes some slices. In a scatter
/// each thread writes some indices of the table, in the order of a single thread.
namespace gspmd::detail {

/// A dim of the slices that threads can share, and the distance between its indices in the three tensors, in
/// elements.
struct slices_dim {
  int dim = -1;  // -1: no dim
  std::int64_t table = 0, slices = 0, indices = 0;

  slices_dim() = default;
  slices_dim(const indexed_access& a, int d) : dim(d), slices(step_of_dim(a.slices, d)) {
    for (int t = 0; t < a.dims.count; ++t)
      if (a.dims[t].along == d && a.dims[t].is_aligned) table = step_of_dim(a.table, t);
    if (a.lookup[d] >= 0) indices = step_of_dim(a.indices, a.lookup[d]);
  }
};
/// Returns the longest dim of the slices that is not looked up in the table. If several dims have this length,
/// returns the first.
inline slices_dim shared_dim_of_slices(const indexed_access& a) {
  int longest = -1;
  for (int d = 0; d < a.slices.count; ++d) {
    bool is_looked_up = false;
    for (int t = 0; t < a.dims.count; ++t) is_looked_up = is_looked_up || (a.dims[t].along == d && !a.dims[t].is_aligned);
    if (!is_looked_up && a.slices[d] > 1 && (longest < 0 || a.slices[d] > a.slices[longest])) longest = d;
  }
  return longest < 0 ? slices_dim{} : slices_dim(a, longest);
}
inline std::int64_t bytes_of_index(const indexed_access& a) { return a.index_type == dtype::s32 ? 4 : 8; }

struct gather_part {
  prepared_gather whole;
  int part, parts;
  slices_dim along;

  gather_part(const prepared_gather& all, int k, int count)
      : whole(all), part(k), parts(count), along(shared_dim_of_slices(*all.access)) {}
  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    index_ranges ranges = kernels::ranges_of(p, s, *whole.access, device);
    const part_of_units own(ranges.slices_valid[along.dim], part, parts);
    if (own.first == own.last) return;
    ranges.slices_valid[along.dim] = own.last - own.first;
    const auto* const index = static_cast<const std::byte*>(device.read(p.operand(s, 1).where)) +
                              own.first * along.indices * bytes_of_index(*whole.access);
    kernels::check_indices(*whole.access, ranges, index);
    const auto bytes = whole.code.elem_bytes;
    gather_slices(whole.code, *whole.access, ranges,
                  static_cast<const std::byte*>(device.read(p.operand(s, 0).where)) + own.first * along.table * bytes, index,
                  static_cast<std::byte*>(device.write(p.result(s).where)) + own.first * along.slices * bytes);
  }
  void end(const plan_view& p, const plan_step& s, const device_memory& device) const { clear_padding(p, p.result(s), device); }
};

/// Returns the first dim of a table with more than one index, whose parts are contiguous. Returns -1 if the dim
/// cannot be shared or does not exist.
inline int shared_dim_of_table(const indexed_access& a) {
  for (int d = 0; d < a.dims.count; ++d)
    if (a.table[d] > 1) return a.dims[d].is_aligned && a.dims[d].along < 0 ? -1 : d;
  return -1;
}
/// A scatter to some indices of the shared dim of the table. The thread treats the other indices like indices on
/// another device. An aligned dim of the slices is cut like the table.
template <class K>
struct scatter_part {
  static constexpr bool replaces = std::is_same_v<K, kernels::scatter_set>;

  prepared_scatter whole;
  indexed_access access;
  int dim;
  part_of_units own;
  slices_dim along;  // the aligned dim

  scatter_part(const prepared_scatter& all, int part, int parts)
      : whole(all), access(*all.access), dim(shared_dim_of_table(access)), own(access.table[dim], part, parts) {
    if (access.dims[dim].is_aligned) along = slices_dim(access, access.dims[dim].along);
    else access.table[dim] = own.last - own.first;
  }
  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    constexpr int first = replaces ? 1 : 0;
    const auto& result = p.result(s);
    const auto step = step_of_dim(access.table, dim) * bytes_of(result.type), at = own.first * step;
    const auto bytes = (own.last - own.first) * step;
    auto* const table = static_cast<std::byte*>(device.write(result.where)) + at;
    const auto* index = static_cast<const std::byte*>(device.read(p.operand(s, first).where));
    const auto* slices = static_cast<const std::byte*>(device.read(p.operand(s, first + 1).where));
    index_ranges ranges = kernels::ranges_of(p, s, *whole.access, device);
    kernels::check_indices(*whole.access, ranges, index);  // all indices, so that no thread writes if an index is wrong
    if (bytes == 0) return;
    if (along.dim >= 0) {
      auto& valid = ranges.slices_valid[along.dim];
      valid = std::max(std::min(own.last, valid) - own.first, std::int64_t{0});
      index += own.first * along.indices * bytes_of_index(access);
      if (!access.is_uniform) slices += own.first * along.slices * bytes_of(result.type);
    } else {
      ranges.table_first[dim] += own.first;
    }
    if constexpr (replaces) {
      const auto* const from = static_cast<const std::byte*>(device.read(p.operand(s, 0).where)) + at;
      if (from != table) std::memcpy(table, from, static_cast<std::size_t>(bytes));
    } else {
      whole.clear(table, bytes / bytes_of(result.type) * (is_complex(result.type) ? 2 : 1));
    }
    if (along.dim < 0 || ranges.slices_valid[along.dim] > 0) scatter_slices(whole.code, access, ranges, index, slices, table);
  }
  void end(const plan_view& p, const plan_step& s, const device_memory& device) const {
    if constexpr (!replaces) clear_padding(p, p.result(s), device);
  }
};

/// Returns the number of elements of all tensors of a scatter, or 0 if one thread runs it. If threads share a
/// looked-up dim, each thread reads all indices. This is faster only for slices of several elements.
inline std::int64_t shared_work_of_scatter(const indexed_access& a, const planned_value& table) {
  constexpr std::int64_t least_elements_of_slice = 8;
  const int d = shared_dim_of_table(a);
  if (d < 0 || elements(a.table) != elements(table.local)) return 0;
  std::int64_t slice = 1;
  for (int k = 0; k < a.slices.count; ++k) slice *= a.lookup[k] < 0 ? a.slices[k] : 1;
  if (!a.dims[d].is_aligned && slice < least_elements_of_slice) return 0;
  return 2 * elements(a.slices);
}

/// Gathers. Each thread copies some slices.
struct gathers_by_parts : prepared_by_parts<kernels::gather, prepared_gather, gather_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    return shared_dim_of_slices(description_of<kernels::gather>(p, s)).dim < 0 ? 0 : 2 * elements(p.result(s).local);
  }
};
template <class K>
struct scatters_by_parts : prepared_by_parts<K, prepared_scatter, scatter_part<K>> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    return shared_work_of_scatter(description_of<K>(p, s), p.result(s));
  }
};

}  // namespace gspmd::detail
