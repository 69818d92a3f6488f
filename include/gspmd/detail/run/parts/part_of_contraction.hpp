// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/run/local_step.hpp"
#include "gspmd/detail/run/parts/part_of_units.hpp"

/// Contractions that the threads of a device share. Each thread computes some indices of a loop over the result, or
/// some rows or columns of its products, with its own plan.
namespace gspmd::detail {

/// The part of a contraction: a plan, and the begin of its operands and its result, in elements.
struct contraction_cut {
  contraction_plan plan;
  std::int64_t lhs = 0, rhs = 0, out = 0;

  constexpr contraction_cut(const contraction_plan& whole) : plan(whole) {}

  // Returns true if the operand may begin at another element. A right operand that is first summed or packed must
  // begin at its first element. A left operand may always begin elsewhere: if it is first summed or packed,
  // plan.lhs_first has the begin.
  [[nodiscard]] constexpr bool may_move(std::int64_t stride, bool is_rhs) const {
    return stride == 0 || !is_rhs || (!plan.rhs.reduced && !plan.rhs.packed);
  }
  constexpr void move(std::int64_t lhs_by, std::int64_t rhs_by, std::int64_t out_by) {
    if (plan.lhs.reduced || plan.lhs.packed) plan.lhs_first += lhs_by;
    else lhs += lhs_by;
    rhs += rhs_by;
    out += out_by;
  }
};

/// A dim of a contraction that threads can share: a loop over the result, the vector of the kernel, or the rows or
/// columns of its products.
struct shared_dim {
  enum kind : std::int8_t { none, loop, vector, rows, cols };
  kind what = none;
  int number = 0;  // of a loop
  contraction_loop along;
  std::int64_t unit = 1;  // number of indices that stay together

  /// Returns the length of the longest part, divided by the mean length.
  [[nodiscard]] constexpr double imbalance(int parts) const {
    const auto units = (along.extent + unit - 1) / unit;
    return static_cast<double>((units + parts - 1) / parts * parts) / static_cast<double>(units);
  }
};

/// The number of adjacent rows or columns of a product that stay together, if it has many: libraries compute this
/// number at a time.
inline constexpr std::int64_t lines_at_once = 16;

/// Returns the dim with the most equal parts. If several dims qualify, returns the outermost. Each result must keep
/// its bits. So rows or columns are not shared if a part would sum in another order than the whole product.
constexpr shared_dim find_shared_dim(const contraction_plan& p, int parts) {
  if (p.unpacked || p.has_phases || (p.panel > 0 && (p.lhs.packed || p.lhs.reduced))) return {};
  const contraction_cut cut(p);
  shared_dim best;
  const auto consider = [&](const shared_dim& d) {
    if (d.along.extent < 2 || !cut.may_move(d.along.stride[1], true)) return;
    if (best.what == shared_dim::none || d.imbalance(parts) < best.imbalance(parts)) best = d;
  };
  for (int i = 0; i < p.loops.count; ++i) consider({shared_dim::loop, i, p.loops[i]});
  if (p.is_vector) {
    consider({shared_dim::vector, 0, p.vector, lines_at_once});
    return best;
  }
  const auto unit_of = [&](std::int64_t extent) { return extent >= 4 * lines_at_once * parts ? lines_at_once : std::int64_t{1}; };
  const int first = p.is_swapped ? 1 : 0;
  for (const auto what : {shared_dim::rows, shared_dim::cols}) {
    const bool is_rows = what == shared_dim::rows;
    contraction_loop along{is_rows ? p.m : p.n, {0, 0, is_rows ? p.out_ld : 1}};
    along.stride[is_rows ? first : 1 - first] =
        is_rows ? (p.transpose_first ? 1 : p.first_ld) : (p.transpose_second ? p.second_ld : 1);
    contraction_plan least = p;
    (is_rows ? least.m : least.n) = along.extent / parts - lines_at_once;
    if ((is_rows ? least.m : least.n) < 2 || terms_in_turn(least) != terms_in_turn(p)) continue;
    consider({what, 0, along, unit_of(along.extent)});
  }
  return best;
}

/// Returns the number of multiplications of a contraction that threads can share. Returns 0 if they cannot share it.
constexpr std::int64_t shared_work_of(const contraction_plan& p) {
  if (find_shared_dim(p, 2).what == shared_dim::none || (has_convolution_library && p.direct.is_one)) return 0;
  std::int64_t work = p.is_vector ? p.vector.extent : p.m * p.n;
  for (const auto& loop : p.loops) work *= loop.extent;
  for (const auto& sum : p.sums) work *= sum.extent;
  return work;
}

/// Returns the contraction of thread `part` of `parts`. If there are too few indices, it has no result.
constexpr contraction_cut cut_contraction(const contraction_plan& p, int part, int parts) {
  contraction_cut cut(p);
  const auto d = find_shared_dim(p, parts);
  if (d.what == shared_dim::none) {
    if (part > 0) cut.plan.out_elems = 0;
    return cut;
  }
  const part_of_units own((d.along.extent + d.unit - 1) / d.unit, part, parts);
  const auto first = own.first * d.unit, last = std::min(own.last * d.unit, d.along.extent), count = last - first;
  if (count <= 0) {
    cut.plan.out_elems = 0;
    return cut;
  }
  if (d.what == shared_dim::loop) cut.plan.loops[d.number].extent = count;
  else if (d.what == shared_dim::vector) cut.plan.vector.extent = count;
  else (d.what == shared_dim::rows ? cut.plan.m : cut.plan.n) = count;
  cut.move(first * d.along.stride[0], first * d.along.stride[1], first * d.along.stride[2]);
  return cut;
}

/// A whole contraction, as one thread computes it.
struct shared_contraction {
  prepared_contraction whole;

  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    kernels::contract::run(whole, p, s, device);
  }
};

/// The part of a thread.
struct contraction_part {
  contraction_cut cut;
  prepared_contraction whole;
  std::int64_t lhs_bytes, rhs_bytes, out_bytes;  // begin of the part

  contraction_part(const prepared_contraction& all, const plan_view& p, const plan_step& s, int part, int parts)
      : cut(cut_contraction(*all.plan, part, parts)),
        whole(all),
        lhs_bytes(cut.lhs * bytes_of(part_of(p.operand(s, 0).type))),
        rhs_bytes(cut.rhs * bytes_of(part_of(p.operand(s, 1).type))),
        out_bytes(cut.out * bytes_of(s.type)) {}

  void run(const plan_view& p, const plan_step& s, const device_memory& device) const {
    std::int64_t valid[max_letters];
    kernels::read_bounds(p, s, device, valid);
    for (const auto letter : cut.plan.summed)
      if (valid[letter] <= 0) {  // the kernel fills the whole result
        if (device.part == 0) kernels::contract::run(whole, p, s, device);
        return;
      }
    whole.run(cut.plan, valid, static_cast<const std::byte*>(device.read(p.operand(s, 0).where)) + lhs_bytes,
              static_cast<const std::byte*>(device.read(p.operand(s, 1).where)) + rhs_bytes,
              static_cast<std::byte*>(device.write(p.result(s).where)) + out_bytes, device.arena + s.scratch, false, true);
  }
};

}  // namespace gspmd::detail
