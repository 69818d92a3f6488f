// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/device_memory.hpp"

/// The padding of shards. No loop and no function of the user computes padding. But products and reductions read the
/// padding of dims that they keep, and collectives move all padding. So a step whose kernel does not write padding
/// fills it with zeros. Then padding raises no floating-point exception.
namespace gspmd::detail {

/// Returns the extent of the valid data along a dim of a shard.
inline std::int64_t valid_extent(const plan_view& plan, const bound& b, const coordinates& at) {
  const auto& v = plan.value(b.value);
  return dim_range(*plan.mesh, v.global, v.layout, b.dim, at).size();
}

/// Returns the global index of the first element of a shard along a dim.
inline std::int64_t first_index(const plan_view& plan, const bound& b, const coordinates& at) {
  const auto& v = plan.value(b.value);
  return part_index(*plan.mesh, v.layout, b.dim, at) * v.local[b.dim];
}

constexpr const planned_group& group_of_step(const plan_view& plan, const plan_step& s) {
  return table_of<planned_group>(plan)[static_cast<std::size_t>(s.spec)];
}
inline fused_group group_of(const plan_view& plan, const plan_step& s) {
  const auto& g = group_of_step(plan, s);
  const auto part = [](const auto& table, const table_range& range) {
    return span(table.data() + range.begin, static_cast<std::size_t>(range.count));
  };
  return {g.loop, part(table_of<scalar_op>(plan), g.ops), part(table_of<fused_store>(plan), g.stores),
          part(table_of<fused_margin>(plan), g.margins)};
}
/// Sets offsets[slot] to the begin of each iota of a fused step on a device.
inline void find_offsets(const plan_view& plan, const plan_step& s, const device_memory& device, std::int64_t* offsets) {
  const int iotas = s.bounds.count - std::popcount(group_of_step(plan, s).cut);
  for (int b = 0; b < iotas; ++b)
    offsets[b] = first_index(plan, plan.bounds[static_cast<std::size_t>(s.bounds.begin + b)], device.at);
}
/// Returns the part of the loop of a fused step whose elements exist on a device.
inline extents existing_loop(const plan_view& plan, const plan_step& s, const device_memory& device) {
  const auto& group = group_of_step(plan, s);
  extents loop = group.loop;
  for (int b = s.bounds.count - std::popcount(group.cut); b < s.bounds.count; ++b) {
    const auto& item = plan.bounds[static_cast<std::size_t>(s.bounds.begin + b)];
    auto& extent = loop[item.index];
    extent = extent / plan.value(item.value).local[item.dim] * valid_extent(plan, item, device.at);
  }
  return loop;
}

/// Returns the existing extents of a value that the reductions of a fused step read, as if the value were in memory.
inline extents existing_shape(const plan_view& plan, const plan_step& s, const extents& shape, const device_memory& device) {
  extents valid = shape;
  for (int b = s.bounds.count - std::popcount(group_of_step(plan, s).cut); b < s.bounds.count; ++b) {
    const auto& item = plan.bounds[static_cast<std::size_t>(s.bounds.begin + b)];
    valid[item.dim] = valid_extent(plan, item, device.at);
  }
  return valid;
}

/// Calls visit(box) for the boxes of its loop that a fused step computes.
template <class Visit>
inline void for_each_box(const plan_view& plan, const plan_step& s, const extents& loop, Visit visit) {
  const auto& group = group_of_step(plan, s);
  if (group.part < 0) return visit(loop_box(loop));
  const auto& part = table_of<inner_part>(plan)[static_cast<std::size_t>(group.part)];
  if (group.is_rim) for_each_rim_box(part, loop, visit);
  else visit(inner_box(part, loop));
}
/// Calls visit(box) for the boxes that this thread computes: all boxes, or the parts that `Part` selects.
template <class Part, class Visit>
inline void for_each_box(const plan_view& plan, const plan_step& s, const extents& loop, const device_memory& device,
                         Visit visit) {
  if constexpr (std::is_same_v<Part, once>) for_each_box(plan, s, loop, visit);
  else for_each_box(plan, s, loop, [&](const loop_box& box) { Part::for_each(device, group_of_step(plan, s).loop, box, visit); });
}

/// Writes zeros to the padding of a device's shard.
[[gnu::noinline]] inline void clear_padding_of(const plan_view& plan, const planned_value& v, const device_memory& device) {
  auto* const shard = static_cast<std::byte*>(device.write(v.where));
  std::int64_t block = elements(v.local) * bytes_of(v.type);  // of all elements with the same indices before d
  std::int64_t valid[max_rank];
  for (int d = 0; d < v.local.count && block > 0; ++d) {
    valid[d] = dim_range(*plan.mesh, v.global, v.layout, d, device.at).size();
    if (valid[d] < v.local[d]) {  // in each block whose indices before d are valid
      const std::int64_t kept = block / v.local[d] * valid[d];
      std::int64_t index[max_rank]{};
      for (int outer = d; outer >= 0;) {
        std::int64_t at = 0;
        for (int k = 0; k < d; ++k) at = at * v.local[k] + index[k];
        std::memset(shard + at * block + kept, 0, static_cast<std::size_t>(block - kept));
        for (outer = d - 1; outer >= 0 && ++index[outer] == valid[outer]; --outer) index[outer] = 0;
      }
      if (valid[d] == 0) return;
    }
    block /= v.local[d];
  }
}
inline void clear_padding(const plan_view& plan, const planned_value& v, const device_memory& device) {
  if (v.is_padded) clear_padding_of(plan, v, device);
}

inline std::size_t bytes_in(const planned_value& v) { return static_cast<std::size_t>(elements(v.local) * bytes_of(v.type)); }

/// Copies an operand to the memory of the result, unless they have the same memory.
inline void copy_operand(const plan_view& p, const plan_step& s, int k, const device_memory& device) {
  const void* from = device.read(p.operand(s, k).where);
  void* to = device.write(p.result(s).where);
  if (from != to && bytes_in(p.result(s)) > 0) std::memcpy(to, from, bytes_in(p.result(s)));
}

inline void clear_results(const plan_view& plan, const plan_step& s, const device_memory& device) {
  for (int k = 0; k < s.results.count; ++k) {
    const auto& v = plan.result(s, k);
    const auto at = static_cast<std::int64_t>(plan.inputs.size()) + v.where.at;
    if (device.given == nullptr || v.where.where != memory_place::kind::output || device.given->strides[at].count == 0)
      clear_padding(plan, v, device);  // a user-provided block has no padding
  }
}

namespace kernels {

/// Sets valid[letter] to the number of valid indices, for each letter with a bound.
inline void read_bounds(const plan_view& p, const plan_step& s, const device_memory& device, std::int64_t* valid) {
  for (int b = 0; b < s.bounds.count; ++b) {
    const auto& item = p.bounds[static_cast<std::size_t>(s.bounds.begin + b)];
    valid[item.index] = valid_extent(p, item, device.at);
  }
}
/// Sets valid[d] to the number of valid indices of dim d of the result.
[[gnu::noinline]] inline void read_existing(const plan_view& p, const plan_step& s, const device_memory& device,
                                            std::int64_t* valid) {
  const auto& result = p.result(s);
  for (int d = 0; d < result.local.count; ++d) valid[d] = result.local[d];
  read_bounds(p, s, device, valid);
}

}  // namespace kernels

}  // namespace gspmd::detail
