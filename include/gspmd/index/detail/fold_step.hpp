// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/index/detail/fold_table.hpp"

/// Reductions and scans by the user's monoids as steps of a plan.
namespace gspmd::detail {

/// Iterates over the rows of a shard across the dim of a fold. A row consists of the valid elements of the innermost
/// dims after this dim, as long as they have no gap.
///
///   [2, 3, 4, 5] without padding, dim 1: rows of 20 elements, at (0, 0) and (1, 0)
class fold_rows {
 public:
  fold_rows(const plan_view& p, const planned_value& x, int dim, const device_memory& device) : shape_(x.local), dim_(dim) {
    for (int d = 0; d < shape_.count; ++d) {
      valid_[d] = dim_range(*p.mesh, x.global, x.layout, d, device.at).size();
      is_empty_ = is_empty_ || (d != dim && valid_[d] <= 0);
    }
    last_ = shape_.count;  // the dims from this one on are one row
    while (last_ > dim + 1 && (last_ == shape_.count || valid_[last_] == shape_[last_])) count_ *= valid_[--last_];
    for (int d = dim + 1; d < shape_.count; ++d) inner_ *= shape_[d];
  }
  [[nodiscard]] std::int64_t along() const { return valid_[dim_]; }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t inner() const { return inner_; }
  /// Calls `visit(outer, at)` for each row. `outer` is the index in the dims before the fold's dim. `at` is the
  /// offset of the row in the `inner()` elements of the later dims.
  template <class Visit>
  void each(Visit visit) const {
    if (is_empty_) return;
    std::int64_t index[max_rank]{};
    for (int d = 0; d >= 0;) {
      std::int64_t outer = 0, at = 0;
      for (int k = 0; k < dim_; ++k) outer = outer * shape_[k] + index[k];
      for (int k = dim_ + 1; k < shape_.count; ++k) at = at * shape_[k] + index[k];
      visit(outer, at);
      for (d = last_ - 1; d >= 0; --d) {
        if (d == dim_) continue;
        if (++index[d] < valid_[d]) break;
        index[d] = 0;
      }
    }
  }

 private:
  extents shape_;
  int dim_, last_ = 0;
  std::int64_t valid_[max_rank];
  std::int64_t count_ = 1, inner_ = 1;
  bool is_empty_ = false;
};

namespace kernels {

inline void fold::run(const prepared_fold& prepared, const plan_view& p, const plan_step& s, const device_memory& device) {
  const fold_spec& spec = *prepared.spec;
  const int count = s.results.count;
  const auto& x = p.operand(s, 0);
  const fold_rows rows(p, x, spec.dim, device);
  const bool has_starts = s.operands.count > count;
  const std::int64_t inner = rows.inner(), n = x.local[spec.dim], kept = spec.is_scan ? n : 1;
  const std::int64_t first = spec.is_reversed ? rows.along() - 1 : 0;
  const std::int64_t parts = has_starts ? p.operand(s, count).local[spec.dim] : 0;
  const std::int64_t part = has_starts ? part_index(*p.mesh, x.layout, spec.dim, device.at) : 0;
  rows.each([&](std::int64_t outer, std::int64_t at) {
    fold_call call{};
    for (int k = 0; k < count; ++k) {
      const auto bytes = bytes_of(p.operand(s, k).type);
      call.in[k] = static_cast<const std::byte*>(device.read(p.operand(s, k).where)) + ((outer * n + first) * inner + at) * bytes;
      call.out[k] = static_cast<std::byte*>(device.write(p.result(s, k).where)) +
                    ((outer * kept + (spec.is_scan ? first : 0)) * inner + at) * bytes;
      if (has_starts)
        call.start[k] = static_cast<const std::byte*>(device.read(p.operand(s, count + k).where)) +
                        ((outer * parts + part) * inner + at) * bytes;
    }
    call.n = rows.along();
    call.step = spec.is_reversed ? -inner : inner;
    call.count = rows.count();
    call.has_start = has_starts;
    call.is_scan = spec.is_scan;
    call.is_exclusive = spec.is_exclusive;
    call.is_reversed = spec.is_reversed;
    call.object = s.local->object;
    s.local->fold(call);
  });
  clear_results(p, s, device);
}

}  // namespace kernels

}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/index/detail/fold_step_instances.ipp"
#endif
