// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/run/parts/part_of_units.hpp"
#include "gspmd/index/detail/scan_step.hpp"
#include "gspmd/index/detail/sort_step.hpp"

/// Sorts, scans and top_k of lines. Each thread of a device processes some lines.
namespace gspmd::detail {

/// Returns the product of the extents before the scanned dim.
inline std::int64_t outer_of_scan(const scan_spec& s) {
  std::int64_t outer = 1;
  for (int d = 0; d < s.dim; ++d) outer *= s.shape[d];
  return outer;
}
inline const std::byte* bytes_from(const void* begin, std::int64_t offset) {
  return begin == nullptr ? nullptr : static_cast<const std::byte*>(begin) + offset;
}

struct scan_part {
  prepared_scan whole;
  scan_spec spec;
  std::int64_t first, inner = 1;

  scan_part(const prepared_scan& all, int part, int parts) : whole(all), spec(*all.spec) {
    const part_of_units own(outer_of_scan(spec), part, parts);
    first = own.first;
    for (int d = spec.dim + 1; d < spec.shape.count; ++d) inner *= spec.shape[d];
    const auto length = spec.shape[spec.dim];
    spec.shape = {};
    for (const auto extent : {own.last - own.first, length, inner}) spec.shape.push_back(extent);
    spec.dim = 1;
  }
  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    const auto line = spec.shape[1] * inner * bytes_of(p.result(s).type),
               totals = spec.parts * inner * bytes_of(p.result(s).type);
    std::int64_t valid = spec.shape[1], part = 0;
    if (s.bounds.count > 0) {
      const auto& b = p.bounds[static_cast<std::size_t>(s.bounds.begin)];
      valid = valid_extent(p, b, device.at);
      part = part_index(*p.mesh, p.value(b.value).layout, b.dim, device.at);
    }
    whole.scan(spec, valid, part, bytes_from(device.read(p.operand(s, 0).where), first * line),
               s.operands.count > 1 ? bytes_from(device.read(p.operand(s, 1).where), first * totals) : nullptr,
               static_cast<std::byte*>(device.write(p.result(s).where)) + first * line);
  }
  void end(const plan_view& p, const plan_step& s, const device_memory& device) const { clear_padding(p, p.result(s), device); }
};

struct sort_part {
  prepared_sort whole;
  part_of_units own;

  sort_part(const prepared_sort& all, int part, int parts) : whole(all), own(all.spec->outer * all.spec->inner, part, parts) {}
  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    sort_lines(*whole.spec, own.first, own.last, p, s, device);
  }
  void end(const plan_view& p, const plan_step& s, const device_memory& device) const { clear_results(p, s, device); }
};

/// The lines of a top_k.
struct top_part {
  prepared_top_k whole;
  top_k_spec spec;
  std::int64_t first = 0;

  static std::int64_t lines_of(const top_k_spec& s) {
    std::int64_t line_count = 1;
    for (int d = 0; d + 1 < s.shape.count; ++d) line_count *= s.shape[d];
    return line_count;
  }
  top_part(const prepared_top_k& all, int part, int parts) : whole(all), spec(*all.spec) {
    const part_of_units own(lines_of(spec), part, parts);
    first = own.first;
    const auto length = spec.shape[spec.shape.count - 1];
    spec.shape = {};
    for (const auto extent : {own.last - own.first, length}) spec.shape.push_back(extent);
  }
  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    std::int64_t valid = spec.shape[1], begin = 0;
    if (s.bounds.count > 0) {
      const auto& b = p.bounds[static_cast<std::size_t>(s.bounds.begin)];
      valid = valid_extent(p, b, device.at);
      begin = first_index(p, b, device.at);
    }
    whole.find(
        spec, valid, begin, bytes_from(device.read(p.operand(s, 0).where), first * spec.shape[1] * bytes_of(p.result(s).type)),
        spec.is_merge ? static_cast<const std::int32_t*>(device.read(p.operand(s, 1).where)) + first * spec.shape[1] : nullptr,
        static_cast<std::byte*>(device.write(p.result(s).where)) + first * spec.k * bytes_of(p.result(s).type),
        static_cast<std::int32_t*>(device.write(p.result(s, 1).where)) + first * spec.k);
  }
  void end(const plan_view& p, const plan_step& s, const device_memory& device) const {
    for (int r = 0; r < s.results.count; ++r) clear_padding(p, p.result(s, r), device);
  }
};

}  // namespace gspmd::detail
