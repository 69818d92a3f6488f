// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/network_rates.hpp"
#include "gspmd/detail/ir/rule.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/complete/value_uses.hpp"
#include "gspmd/detail/support/saturating.hpp"

namespace gspmd::detail {

/// Whether readers find an operator's result in its operand, or compute it where they need it: then it need not lie in memory.
constexpr bool is_read_in_place(const node& n) {
  const auto& facts = facts_of(n.op);
  return facts.runs == realisation::loop || (facts.made == origin::shards && facts.movements(n) == 1);
}
/// Whether a value is written to memory and read from there. It is not where only loops read it, which become one with what makes it, or
/// one operator that adds it up.
constexpr bool is_in_memory(const graph& g, const value_uses& uses, int i) {
  const node& n = g.nodes[static_cast<std::size_t>(i)];
  if (facts_of(n.op).runs == realisation::strides) return false;
  if (!is_read_in_place(n)) return true;
  const auto readers = uses.readers(i);
  for (const int r : readers) {
    const node& reader = g.nodes[static_cast<std::size_t>(r)];
    const auto& its = facts_of(reader.op);
    const bool adds_up = its.runs == realisation::steps && reader.operands.count == 1 && its.movements(reader) == 0;
    if (r == i || (its.runs != realisation::loop && (!adds_up || readers.size() > 1))) return true;
    if (its.made == origin::renamed && is_in_memory(g, uses, r)) return true;
  }
  return false;
}

/// Counts what a device does in the operator of node `i`, by the extents that it has of each factor: arithmetic for every combination of
/// them, and the bytes of the operands and results that lie in memory, each once.
///   bd,df->bf of float   2 (b+16) (d+16) (f+16) flops, 4 (bd + df + bf) bytes
///   x + y * z            2 flops an element, and 16 bytes
/// `by_flops_alone`, where the user names no network: 2 for every combination, and neither memory nor small extents count.
class work_counter {
 public:
  constexpr work_counter(const graph& g, const mesh_shape& mesh, const value_uses& uses, int i, const op_rule& rule,
                         bool by_flops_alone = false)
      : mesh_(mesh), rule_(rule), more_(by_flops_alone ? 0 : added_to_extents_of_product) {
    const node& n = g.nodes[static_cast<std::size_t>(i)];
    const auto& facts = facts_of(n.op);
    const int count = n.operands.count;
    works_ = facts.made == origin::shards && (facts.runs == realisation::loop || facts.runs == realisation::steps);
    is_product_ = count == 2 && !rule.uniform;
    each_ = is_product_ && is_complex(n.type) ? 8 : is_product_ || by_flops_alone ? 2 : 1;
    for (int k = 0; k <= count && works_; ++k) {
      const int t = k == count ? i : n.operands[k];
      bool is_moved = !by_flops_alone && is_in_memory(g, uses, t);
      for (int o = 0; o < k && o < count; ++o) is_moved = is_moved && n.operands[o] != t;
      // The operators that read neighbours of the same elements in place find them in a cache.
      if (k < count && facts.runs != realisation::loop && is_read_in_place(n) && !uses.readers(t).empty())
        is_moved = is_moved && uses.readers(t)[uses.readers(t).size() - 1] == i;
      elem_bytes_.push_back(is_moved ? bytes_of(g.nodes[static_cast<std::size_t>(t)].type) : 0);
    }
  }

  [[nodiscard]] constexpr bool is_product() const { return is_product_; }
  [[nodiscard]] constexpr operator_work of(const factor_splits& uses) const {
    if (!works_) return {};
    std::int64_t both = 1, side[3] = {0, 0, 0};  // side: of the first operand, of the second one, contracted; 0: there is none
    inline_vec<std::int64_t, max_map_arity + 1> elems(elem_bytes_.count, std::int64_t{1});
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
      const bool in_first = is_product_ && holds(0, f), in_second = is_product_ && holds(1, f);
      if (!is_product_ || (in_first && in_second && holds(2, f))) both = saturating_multiply(both, extent);
      else if (auto& s = side[!holds(2, f) ? 2 : in_first ? 0 : 1]; true) s = saturating_multiply(s == 0 ? 1 : s, extent);
    }
    operator_work work{saturating_multiply(each_, both), 0};
    for (const auto s : side)
      if (s != 0) work.flops = saturating_multiply(work.flops, s + more_);
    for (int t = 0; t < elems.count; ++t) work.bytes = saturating_add(work.bytes, saturating_multiply(elems[t], elem_bytes_[t]));
    return work;
  }

 private:
  [[nodiscard]] constexpr bool holds(int t, int f) const {
    return rule_.uniform || (t + 1 == elem_bytes_.count ? rule_.result() : rule_.operand(t)).holds(f);
  }
  const mesh_shape& mesh_;
  const op_rule& rule_;
  std::int64_t more_;  // of each extent of a product
  bool works_ = false, is_product_ = false;
  std::int64_t each_ = 1;
  inline_vec<std::int64_t, max_map_arity + 1> elem_bytes_;  // of operands, then of the result; 0: it costs nothing
};

}  // namespace gspmd::detail
