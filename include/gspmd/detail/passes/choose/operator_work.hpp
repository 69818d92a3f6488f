// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/network_rates.hpp"
#include "gspmd/detail/ir/rule.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/request/value_uses.hpp"
#include "gspmd/detail/support/saturating.hpp"

namespace gspmd::detail {

using bytes_by_tensor = inline_vec<std::int64_t, max_map_arity + 1>;

/// Returns true if the operator takes time on a device, for its own work on elements.
constexpr bool works(const operator_facts& facts) {
  return facts.made == origin::shards && (facts.runs == realisation::loop || facts.runs == realisation::steps);
}
/// Returns the bytes per element of each operand of node `i`, then of its result. A value of 0 means that the tensor is
/// not in memory, or is counted elsewhere.
constexpr bytes_by_tensor moved_bytes(const graph& g, const value_uses& uses, int i) {
  const node& n = g.nodes[static_cast<std::size_t>(i)];
  const auto& facts = facts_of(n.op);
  const int count = n.operands.count;
  bytes_by_tensor bytes;
  for (int k = 0; k <= count; ++k) {
    const int t = k == count ? i : n.operands[k];
    bool is_moved = uses.in_memory[t] != 0;
    for (int o = 0; o < k && o < count; ++o) is_moved = is_moved && n.operands[o] != t;
    // Operators that read neighbours of the same elements in place find them in a cache. Only the first operator counts
    // them.
    if (k < count && facts.runs != realisation::loop && is_read_in_place(n) && !uses.readers(t).empty())
      is_moved = is_moved && uses.readers(t)[uses.readers(t).size() - 1] == i;
    bytes.push_back(is_moved ? bytes_of(g.nodes[static_cast<std::size_t>(t)].type) : 0);
  }
  return bytes;
}

/// Counts the work of a device in the operator of node `i`, from the device's extent of each factor. The flops are
/// counted for every combination of the factors. The bytes are those of the operands and results in memory, each once.
///   bd,df->bf of float   2 (b+16) (d+16) (f+16) flops, 4 (bd + df + bf) bytes
///   x + y * z            2 flops an element, and 16 bytes
/// If `by_flops_alone` is true (no network is named), every combination counts 2 flops, and memory and small extents do
/// not count.
class work_counter {
 public:
  constexpr work_counter(const graph& g, const mesh_shape& mesh, const value_uses& uses, int i, const op_rule& rule,
                         bool by_flops_alone = false)
      : mesh_(mesh), rule_(rule), by_flops_alone_(by_flops_alone) {
    const node& n = g.nodes[static_cast<std::size_t>(i)];
    const auto& facts = facts_of(n.op);
    works_ = works(facts);
    is_product_ = n.op.id == einsum.id || n.op.id == convolution.id;
    each_ = by_flops_alone ? 2 : is_product_ ? (is_complex(n.type) ? 8 : 2) : 1;
    if (works_ && !by_flops_alone) elem_bytes_ = moved_bytes(g, uses, i);
  }

  [[nodiscard]] constexpr bool is_product() const { return is_product_; }
  [[nodiscard]] constexpr operator_work of(const factor_splits& uses) const {
    if (!works_) return {};
    std::int64_t both = 1, side[3] = {0, 0, 0};  // side: of the first operand, of the second one, contracted; 0: absent
    bytes_by_tensor elems(elem_bytes_.count, std::int64_t{1});
    for (int f = 0; f < rule_.factors.count; ++f) {
      const factor& of = rule_.factors[f];
      if (of.kind == factor_kind::indexed || of.size == 1) continue;
      std::int64_t parts = 1;
      for (const auto& use : uses)
        if (use.dim == f) parts *= mesh_.sizes[use.axis];
      const auto extent = shard_extent(of.size, parts);
      if (extent == 0) return {};
      for (int t = 0; t < elems.count; ++t)
        if (elem_bytes_[t] != 0 && holds(t, f)) elems[t] = saturating_multiply(elems[t], extent);
      if (by_flops_alone_ || !is_product_) {
        both = saturating_multiply(both, extent);
        continue;
      }
      const bool in_first = holds(0, f), in_second = holds(1, f);
      if (in_first && in_second && holds(2, f)) both = saturating_multiply(both, extent);
      else if (auto& s = side[!holds(2, f) ? 2 : in_first ? 0 : 1]; true) s = saturating_multiply(s == 0 ? 1 : s, extent);
    }
    operator_work work{saturating_multiply(each_, both), 0};
    for (const auto s : side)
      if (s != 0) work.flops = saturating_multiply(work.flops, saturating_add(s, added_to_extents_of_product));
    for (int t = 0; t < elems.count; ++t) work.bytes = saturating_add(work.bytes, saturating_multiply(elems[t], elem_bytes_[t]));
    return work;
  }

 private:
  // Products are recognised by name, because not every program includes both operators.
  static constexpr operator_name einsum{"einsum"}, convolution{"convolution"};
  [[nodiscard]] constexpr bool holds(int t, int f) const {
    return rule_.uniform || (t == rule_.maps.count - rule_.results ? rule_.result() : rule_.operand(t)).holds(f);
  }
  const mesh_shape& mesh_;
  const op_rule& rule_;
  bool by_flops_alone_;
  bool works_ = false, is_product_ = false;
  std::int64_t each_ = 1;
  bytes_by_tensor elem_bytes_;  // empty if only flops count
};

}  // namespace gspmd::detail
