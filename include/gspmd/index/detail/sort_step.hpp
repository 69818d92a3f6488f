// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "gspmd/index/detail/sort_kernel.hpp"

/// Sorts as steps of a plan.
namespace gspmd::detail {

/// The operands and results of a step that sorts. Result k has the type of operand k.
struct sorted_operands {
  int count;
  dtype types[max_results];
  const void *own[max_results], *others[max_results];
  void* to[max_results];

  sorted_operands(const plan_view& p, const plan_step& s, const device_memory& device) : count(s.results.count) {
    for (int k = 0; k < count; ++k) {
      types[k] = p.result(s, k).type;
      own[k] = device.read(p.operand(s, k).where);
      others[k] = s.operands.count > count ? device.read(p.operand(s, count + k).where) : nullptr;
      to[k] = device.write(p.result(s, k).where);
    }
  }
};

/// Sorts the lines [first, last).
inline void sort_lines(const sort_spec& spec, std::int64_t first, std::int64_t last, const plan_view& p, const plan_step& s,
                       const device_memory& device) {
  std::int64_t valid = spec.length;
  if (s.bounds.count > 0) valid = valid_extent(p, p.bounds[static_cast<std::size_t>(s.bounds.begin)], device.at);
  const sorted_operands x(p, s, device);
  void* const scratch = device.arena + s.scratch;
  for (std::int64_t l = first; l < last; ++l) {
    const sorted_line line(spec, l / spec.inner, l % spec.inner);
    if (x.count > 1) detail::sort_together(spec, line, valid, x.count, x.types, x.own, x.to, scratch);
    else
      with_word(bytes_of(x.types[0]),
                [&](auto bits) { sort_elements<decltype(bits)>(spec, line, valid, x.types[0], x.own[0], x.to[0], scratch); });
  }
}

namespace kernels {

inline void sort::run(const prepared_sort& prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  sort_lines(*prepared.spec, 0, prepared.spec->outer * prepared.spec->inner, p, s, device);
  clear_results(p, s, device);
}

inline void sort_ends::run(const prepared_sort_ends& prepared, const plan_view& p, const plan_step& s,
                           const device_memory& device) {
  const sort_ends_spec& spec = *prepared.spec;
  const auto& b = p.bounds[static_cast<std::size_t>(s.bounds.begin)];
  const auto part = part_index(*p.mesh, p.value(b.value).layout, b.dim, device.at);
  const sorted_operands x(p, s, device);
  const std::int64_t around = spec.is_mirrored ? spec.half : 2 * spec.half;
  for (std::int64_t row = 0; row < spec.rows; ++row) {
    const auto merge = [&](const merged_end& m) {
      if (x.count > 1) return merge_together(m, spec.order, x.count, x.types, x.own, x.others, x.to, device.arena + s.scratch);
      with_word(bytes_of(x.types[0]), [&](auto bits) {
        merge_elements<decltype(bits)>(m, x.types[0], spec.order.descending != 0, x.own[0], x.others[0], x.to[0]);
      });
    };
    const auto own = row * spec.length, other = row * around, half = spec.half;
    const std::int64_t mirrored = other + half - 1;
    std::int64_t begin = own, end = own + spec.length;
    if (part > 0) {
      merge({true, own, spec.is_mirrored ? mirrored : other, spec.is_mirrored ? -1 : 1, half});
      begin += half;
    }
    if (part + 1 < spec.parts) {
      end -= half;
      merge({false, end, spec.is_mirrored ? mirrored : other + half, spec.is_mirrored ? -1 : 1, half});
    }
    for (int k = 0; k < x.count && begin < end; ++k) {
      const auto bytes = bytes_of(x.types[k]);
      std::memcpy(static_cast<std::byte*>(x.to[k]) + begin * bytes, static_cast<const std::byte*>(x.own[k]) + begin * bytes,
                  static_cast<std::size_t>((end - begin) * bytes));
    }
  }
  clear_results(p, s, device);
}

}  // namespace kernels

}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/index/detail/sort_step_instances.ipp"
#endif
