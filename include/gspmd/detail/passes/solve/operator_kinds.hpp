// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "gspmd/detail/passes/solve/form_tables.hpp"
#include "gspmd/detail/passes/solve/operator_ways.hpp"

namespace gspmd::detail {

/// Operators with equal ways: the same operator on the same shapes. The layers of a network share their kinds.
struct operator_kind {
  std::uint64_t key = 0;
  operator_ways ways;
  vec<int> operands, results;  // ports
};

/// The kinds of the operators of a program. The ways of a kind are listed and priced once.
class operator_kinds {
 public:
  constexpr operator_kinds(const form_prices& known, form_tables& tables) : known_(known), tables_(tables) {}

  [[nodiscard]] constexpr const operator_kind& operator[](int kind) const { return list_[kind]; }
  /// Returns the kind of values with the shape and type of node `i`.
  [[nodiscard]] constexpr int kind_of_value(int i) { return tables_.kind_of(known_.shape_of(i), bytes_of(known_.at(i).type)); }
  /// Returns the sharding of result `r` of node `i`.
  [[nodiscard]] constexpr sharding result(int i, const operator_use& way, int r) const {
    if (r == 0) return way.result;
    op_rule rule;
    rule_of(known_.program, known_.at(i), rule);
    return further_result(known_.mesh, rule, way.uses, r);
  }
  /// Returns the kind of node `i`, whose operands have these partial forms.
  constexpr int add(int i, const inline_vec<partial_forms, max_map_arity>& operands) {
    const node& n = known_.at(i);
    const std::uint64_t key = key_of(i, operands);
    for (std::size_t k = list_.size(); k-- > 0 && key != 0;)
      if (list_[k].key == key) return static_cast<int>(k);
    operator_kind made;
    made.key = key;
    made.ways = way_list(known_, i, operands).run();
    const auto& ways = made.ways.of;
    vec<sharding> forms;
    for (int k = 0; k < n.operands.count; ++k) {
      forms.clear();
      for (const auto& way : ways) forms.push_back(way.wanted[k]);
      made.operands.push_back(tables_.add_port(kind_of_value(n.operands[k]), forms));
    }
    for (int r = 0; r < n.results; ++r) {
      forms.clear();
      for (const auto& way : ways) forms.push_back(result(i, way, r));
      made.results.push_back(tables_.add_port(kind_of_value(i + r), forms));
    }
    list_.push_back(std::move(made));
    return static_cast<int>(list_.size()) - 1;
  }

 private:
  /// Returns a hash of all facts that the ways of node `i` and their times depend on. Returns 0 if they must not be
  /// shared.
  [[nodiscard]] constexpr std::uint64_t key_of(int i, const inline_vec<partial_forms, max_map_arity>& operands) {
    const node& n = known_.at(i);
    if (n.function != nullptr || n.local != nullptr) return 0;
    key_ = 1;
    take(n.op.id);
    take(static_cast<std::uint64_t>(n.type) << 16 | static_cast<std::uint64_t>(n.reduced_by) << 8 |
         (n.allow_replication ? 1U : 0U));
    take(std::bit_cast<std::uint64_t>(n.real));
    take(static_cast<std::uint64_t>(n.integer));
    take_list(n.shape);
    take_list(n.attributes);
    if (known_.net().is_named)
      for (const auto bytes : moved_bytes(known_.program, known_.uses, i)) take(static_cast<std::uint64_t>(bytes));
    for (int r = 0; r < n.results; ++r) take(known_.is_read(i + r) ? 1 : 0);
    take(divides_whole_sum(known_, i) ? 1 : 0);
    const bool may_be_refused = !known_.program.allow_replication && !n.allow_replication;
    bool is_any_annotated = false;
    for (const int o : n.operands) is_any_annotated = is_any_annotated || known_.at(o).annotated;
    take(is_any_annotated ? axes_gathered_anyway(known_, i) : 0);
    const bool asks = may_be_refused || is_any_annotated || has_small_dims(i) || std::popcount(known_.mesh.wide_axes()) > 2;
    if (asks) take(known_.preferred_of(i));
    if (may_be_refused) take(axes_gathered_anyway(known_, i));
    for (int k = 0; k < n.operands.count; ++k) {
      const int o = n.operands[k];
      int same = 0;
      while (n.operands[same] != o) ++same;
      take(static_cast<std::uint64_t>(same));
      take(static_cast<std::uint64_t>(known_.at(o).type));
      take_list(known_.shape_of(o));
      for (const auto& form : operands[k]) take(std::uint64_t{form.axes} << 8 | static_cast<std::uint64_t>(form.reduced_by));
      if (operands[k].count > 0) take(is_looked_up(known_, o) ? 3 : 2);
      if (asks) take(known_.preferred_of(o));
    }
    return key_ == 0 ? 1 : key_;
  }
  constexpr void take(std::uint64_t word) {
    key_ = (key_ ^ word) * 0x9e3779b97f4a7c15U;
    key_ ^= key_ >> 29;
  }
  constexpr void take(const sharding& s) {
    take(static_cast<std::uint64_t>(s.splits.count));
    for (const auto& use : s.splits) take(static_cast<std::uint64_t>(32 * use.axis + use.dim + 1));
  }
  /// Returns true if a split of the operands or the result of node `i` can leave empty parts.
  [[nodiscard]] constexpr bool has_small_dims(int i) const {
    const auto is_small = [&](int k) {
      for (const auto e : known_.shape_of(k))
        if (e < known_.mesh.device_count()) return true;
      return false;
    };
    bool is_any = is_small(i);
    for (const int o : known_.at(i).operands) is_any = is_any || is_small(o);
    return is_any;
  }
  constexpr void take_list(const auto& list) {
    take(static_cast<std::uint64_t>(list.count));
    for (const auto e : list) take(static_cast<std::uint64_t>(e));
  }

  const form_prices& known_;
  form_tables& tables_;
  vec<operator_kind> list_;
  std::uint64_t key_ = 0;
};

}  // namespace gspmd::detail
