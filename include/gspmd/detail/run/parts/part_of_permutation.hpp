// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/run/local_step.hpp"
#include "gspmd/detail/run/parts/part_of_units.hpp"

/// Permutations of dims that the threads of a device share. Each thread writes some indices of a loop, or some rows
/// or columns of all planes.
namespace gspmd::detail {

/// The part of a permutation: a plan, and the begin of its operand and result, in elements.
struct permutation_cut {
  permutation_plan plan;
  std::int64_t in = 0, out = 0;

  /// The number of adjacent rows or columns of a plane that stay together: a cache line of the smallest elements.
  static constexpr std::int64_t lines_at_once = 64;

  constexpr permutation_cut(const permutation_plan& whole, int part, int parts) : plan(whole) {
    int longest = -1;
    for (int i = 0; i < plan.loops.count; ++i)
      if (longest < 0 || plan.loops[i].extent > plan.loops[longest].extent) longest = i;
    const bool copies = plan.row > 1 || plan.cols == 1;
    const auto take = [&](std::int64_t& extent, std::int64_t unit, std::int64_t in_by, std::int64_t out_by) {
      const auto units =
          extent < unit ? std::int64_t{1} : extent / unit;  // the last unit gets the rest: a plane has two columns or more
      const part_of_units own(units, part, parts);
      const auto first = own.first * unit, last = own.last == units ? extent : own.last * unit;
      extent = last - first;
      in = first * in_by;
      out = first * out_by;
      if (extent <= 0) plan.elems = 0;
    };
    const auto longer = plan.rows > plan.cols ? plan.rows : plan.cols;
    if (longest >= 0 && (copies || plan.loops[longest].extent >= longer / lines_at_once))
      take(plan.loops[longest].extent, 1, plan.loops[longest].stride[0], plan.loops[longest].stride[1]);
    else if (copies) take(plan.row, lines_at_once, 1, 1);
    else if (plan.rows > plan.cols) take(plan.rows, lines_at_once, plan.in_ld, 1);
    else take(plan.cols, lines_at_once, 1, plan.out_ld);
  }
};

/// A permutation, as one thread runs it.
struct shared_permutation {
  prepared_permutation whole;

  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    kernels::permute::run(whole, p, s, device);
  }
};
struct permutation_part {
  permutation_cut cut;
  prepared_permutation whole;
  std::int64_t elem_bytes;

  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    whole.run(cut.plan, static_cast<const std::byte*>(device.read(p.operand(s, 0).where)) + cut.in * elem_bytes,
              static_cast<std::byte*>(device.write(p.result(s).where)) + cut.out * elem_bytes);
  }
  void end(const plan_view& p, const plan_step& s, const device_memory& device) const { clear_padding(p, p.result(s), device); }
};

/// A part of a copy, in cache lines.
struct shared_copy_part {
  int part, parts;

  shared_copy_part(const nothing_prepared&, int k, int count) : part(k), parts(count) {}
  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    constexpr auto line = static_cast<std::int64_t>(cache_line_bytes);
    const auto bytes = static_cast<std::int64_t>(bytes_in(p.result(s)));
    const part_of_units own((bytes + line - 1) / line, part, parts);
    const auto first = own.first * line, last = std::min(own.last * line, bytes);
    const auto* const from = static_cast<const std::byte*>(device.read(p.operand(s, 0).where));
    auto* const to = static_cast<std::byte*>(device.write(p.result(s).where));
    if (from != to && first < last) std::memcpy(to + first, from + first, static_cast<std::size_t>(last - first));
  }
};

}  // namespace gspmd::detail
