// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/contraction_plan.hpp"
#include "gspmd/detail/ir/kernels/parts.hpp"
#include "gspmd/detail/ir/row_work.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/target.hpp"

namespace gspmd::detail {

/// An einsum that processes an operand shard by shard. Positions in scratch are in elements from its begin.
struct planned_ring {
  int contraction = 0;                     // of a single shard
  std::int8_t operand = 0;                 // the operand whose shards rotate
  std::int8_t letter = 0;                  // of the contraction: the split dim
  inline_vec<std::int8_t, 3> dims;         // the same dim of both operands and the result; -1: does not exist
  inline_vec<std::int8_t, max_axes> axes;  // of the ring
  bool both_ways = false;
  std::int64_t buffers_at = 0;   // shards of the other devices: see ring_rounds
  std::int64_t operand_at = -1;  // the part of the other operand; -1: it is used in place
  std::int64_t result_at = -1;   // the part of the result; -1: it is written in place
  std::int64_t scratch_elems = 0;
  friend constexpr bool operator==(const planned_ring&, const planned_ring&) = default;
};

/// Returns the elements of a buffer in scratch: whole cache lines of the smallest elements of an einsum.
constexpr std::int64_t buffer_elems(std::int64_t elems) { return (elems + 15) / 16 * 16; }

inline namespace GSPMD_TARGET {
struct prepared_contraction;
}

struct products_by_parts;  // run/parts/kernels_by_parts.hpp

namespace kernels {

/// An einsum of two operands.
struct contract : plain_step, on_one_device, never_in_place {
  using tables = mp11::mp_list<kernel_table<contraction_plan, entries::shared_by_equal_steps>>;
  using parts = products_by_parts;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::bytes;

  static constexpr std::int64_t scratch_bytes(const auto& tables, const plan_step& s) {
    return table_of<contraction_plan>(tables)[static_cast<std::size_t>(s.spec)].scratch_elems * bytes_of(s.type);
  }

  /// Returns the number of leading letters that both operands and the result share: `ij` of `ijkc,ijk->ijc`.
  static constexpr int leading_letters(const contraction& c) {
    int n = 0;
    while (n < c.lhs.count && n < c.rhs.count && n < c.out.count && c.lhs[n] == n && c.rhs[n] == n && c.out[n] == n) ++n;
    return n;
  }
  /// Finds rows of sums of products, and of matrix-vector products, for each index of the first dims: `ab,ab->a`,
  /// `ijc,ij->ic`. (These contain no product of matrices that blocks of rows could make smaller.)
  static constexpr void find_rows(const auto& lowered, const plan_step& s, row_work& found) {
    const contraction* const known = lowered.contraction_of(s);
    if (known == nullptr) return;
    const contraction& c = *known;
    if (!c.windows.empty() || c.padded != 0) return;
    if (c.lhs.count != c.extent.count && c.rhs.count != c.extent.count) return;
    if (table_of<contraction_plan>(lowered.out)[s.spec].panel > 0) return;
    const auto elements_of = [&c](const inline_vec<std::int8_t, max_rank>& letters, int count) {
      std::int64_t all = 1;
      for (int d = 0; d < count; ++d) all *= c.extent[letters[d]];
      return all;
    };
    const auto lhs = elements_of(c.lhs, c.lhs.count), rhs = elements_of(c.rhs, c.rhs.count);
    if (!has_elements(lowered.out, s.operands, 0, lhs) || !has_elements(lowered.out, s.operands, 1, rhs)) return;
    found.rows = elements_of(c.out, leading_letters(c));
    found.read.push_back(lhs);
    found.read.push_back(rhs);
    found.made.push_back(elements_of(c.out, c.out.count));
  }
  static constexpr int take_rows(auto& lowered, plan_step& s, const row_part& part) {
    const contraction whole = *lowered.contraction_of(s);
    const int rows_end = leading_letters(whole), merged = rows_end - 1;
    contraction c;  // not narrow: see find_rows
    c.padded = 0;
    std::int64_t rows = 1;
    for (int l = 0; l < rows_end; ++l) rows *= whole.extent[l];
    c.extent.push_back(part.of(rows));
    for (int l = rows_end; l < whole.extent.count; ++l) c.extent.push_back(whole.extent[l]);
    const auto renumber = [&](const inline_vec<std::int8_t, max_rank>& from, inline_vec<std::int8_t, max_rank>& to) {
      to.push_back(0);
      for (int d = rows_end; d < from.count; ++d) to.push_back(static_cast<std::int8_t>(from[d] - merged));
    };
    renumber(whole.lhs, c.lhs);
    renumber(whole.rhs, c.rhs);
    renumber(whole.out, c.out);
    s.spec = lowered.planned(c);
    return merged;
  }

  template <class = once>
  static prepared_contraction prepare(const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_contraction& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

/// The same, while the shards of one operand rotate around a ring of devices.
struct contract_round_ring : plain_step, never_in_place, not_by_rows, runs_on_one_thread {
  using tables = mp11::mp_list<kernel_table<planned_ring, entries::shared_by_equal_steps>,
                               kernel_table<contraction_plan, entries::shared_by_equal_steps>>;
  static constexpr step_work work = step_work::computes_while_moving;
  static constexpr element_kinds handles = element_kinds::bytes;

  static constexpr std::int64_t scratch_bytes(const auto& tables, const plan_step& s) {
    return table_of<planned_ring>(tables)[static_cast<std::size_t>(s.spec)].scratch_elems * bytes_of(s.type);
  }
  static constexpr axis_mask axes(const auto& p, const plan_step& s) { return ring_of(p, s).mask(); }
  static constexpr std::int64_t messages(const auto& p, const plan_step& s) { return ring_of(p, s).size(*p.mesh) - 1; }
  static constexpr detail::packing packing(const plan_view&, const plan_step&) { return {}; }
  static constexpr ring_rounds_kind rounds(const auto& p, const plan_step& s) {
    return planned_ring_of(p, s).both_ways ? ring_rounds_kind::both_ways : ring_rounds_kind::one_way;
  }

  template <class = once>
  static prepared_contraction prepare(const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  template <class Comm>
  static void run(const prepared_contraction& prepared, const plan_view& p, const plan_step& s, Comm& comm,
                  const devices_here& devices);
};

}  // namespace kernels

}  // namespace gspmd::detail
