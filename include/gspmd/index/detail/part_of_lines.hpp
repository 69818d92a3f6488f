// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

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

/// Sorts of lines. The work of a line is n log n.
struct sorts_by_parts : prepared_by_parts<kernels::sort, prepared_sort, sort_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    const sort_spec spec = description_of<kernels::sort>(p, s);
    std::int64_t rounds = 2;
    for (auto n = spec.sorted_length; n > 1; n /= 2) ++rounds;
    return spec.outer * spec.inner < 2 ? 0 : spec.outer * spec.inner * spec.sorted_length * rounds * s.results.count;
  }
};

/// Scans, if the scanned dim has dims before it.
struct scans_by_parts : prepared_by_parts<kernels::scan, prepared_scan, scan_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    const scan_spec spec = description_of<kernels::scan>(p, s);
    const auto elems = elements(p.result(s).local);
    return outer_of_scan(spec) < 2 || elements(spec.shape) != elems ? 0 : 3 * elems;
  }
};

/// Lines of a top_k.
struct top_k_by_parts : prepared_by_parts<kernels::top_k, prepared_top_k, top_part> {
  static std::int64_t work(const plan_view& p, const plan_step& s) {
    const top_k_spec spec = description_of<kernels::top_k>(p, s);
    return top_part::lines_of(spec) < 2 ? 0 : 2 * elements(spec.shape);
  }
};

}  // namespace gspmd::detail
