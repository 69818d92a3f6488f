// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "gspmd/detail/passes/choose/later_preferences.hpp"
#include "gspmd/detail/passes/choose/operator_use.hpp"
#include "gspmd/detail/passes/choose/operator_work.hpp"
#include "gspmd/detail/passes/choose/shared_sums.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Remembers the uses of the mesh axes that operators got. The layers of a network repeat: if all inputs of a choice
/// equal those of an earlier operator, the operator gets the same use and no price is computed. The key is a 64-bit
/// hash of the inputs.
class known_uses {
 public:
  constexpr known_uses(const form_prices& known, reader_preferences& readers) : known_(known), readers_(readers) {}

  /// Returns the key of the inputs of the choice for node `i`. Returns 0 if the choice must not be remembered: in
  /// bodies of loops and conditionals, for user-defined functions, under policies such as keep_split, and in
  /// local views.
  [[nodiscard]] constexpr std::uint64_t key_of(int i, const node& n, const operand_shardings& held) {
    if (known_.book.depth() > 0 || n.function != nullptr || n.local != nullptr || n.gather_limit >= 0) return 0;
    if ((n.local_axes | n.annotation.closed) != 0 || known_.at(i).keep_partial) return 0;
    for (const int o : n.operands)
      if (known_.at(o).keep_split || known_.at(o).keep_partial || known_.at(o).annotation.closed != 0) return 0;
    key_ = 1;
    take_operator(n);
    for (int r = 0; r < n.results; ++r) take(known_.preferred_of(i + r));
    for (int r = 0; r < n.results; ++r) take(known_.wanted_of(i + r));
    for (int r = 0; r < n.results && facts_of(n.op).has_collectives; ++r) take(known_.is_read(i + r) ? 1 : 0);
    take(std::uint64_t{axes_gathered_anyway(known_, i)});
    for (int k = 0; k < n.operands.count; ++k) take_operand(i, n, k, held[k]);
    const shared_sum sum = shared_sum_of(known_, i);
    if (known_.net().is_named)  // the time depends on the values in memory
      for (const auto bytes : moved_bytes(known_.program, known_.uses, i)) take(bytes);
    take(sum.open);
    for (const auto& term : sum.chosen) take(term);
    return key_ == 0 ? 1 : key_;
  }
  /// Returns the use that is remembered under `key`, or null.
  [[nodiscard]] constexpr const factor_splits* find(std::uint64_t key) const {
    const std::size_t first = entries_.size() < most_looked_at ? 0 : entries_.size() - most_looked_at;
    for (std::size_t k = entries_.size(); k-- > first;)
      if (entries_[k].key == key) return &entries_[k].uses;
    return nullptr;
  }
  constexpr void remember(std::uint64_t key, const operator_use& use) {
    if (key != 0 && !use.moved) entries_.push_back({key, use.uses});
  }

 private:
  struct entry {
    std::uint64_t key = 0;
    factor_splits uses;
  };

  constexpr void take(std::uint64_t word) {
    key_ = (key_ ^ word) * 0x9e3779b97f4a7c15U;
    key_ ^= key_ >> 29;
  }
  constexpr void take(int number) { take(static_cast<std::uint64_t>(number)); }
  constexpr void take(std::int64_t number) { take(static_cast<std::uint64_t>(number)); }
  constexpr void take(const sharding& s) {
    take(std::uint64_t{s.partial} << 8 | static_cast<std::uint64_t>(s.reduced_by));
    std::uint64_t word = static_cast<std::uint64_t>(s.splits.count) + 1;
    for (const auto& use : s.splits) word = word * 1021 + static_cast<std::uint64_t>(32 * use.axis + use.dim + 1);
    take(word);
  }
  constexpr void take(const extents& shape) {
    take(shape.count);
    for (const auto e : shape) take(e);
  }
  constexpr void take_operator(const node& n) {
    take(n.op.id);
    take(static_cast<std::uint64_t>(n.type) << 16 | static_cast<std::uint64_t>(n.reduced_by) << 8 | (n.forbid_reshard ? 2U : 0U) |
         (n.allow_replication ? 1U : 0U));
    take(std::bit_cast<std::uint64_t>(n.real));
    take(n.integer);
    take(n.shape);
    take(n.attributes.count);
    for (const auto a : n.attributes) take(a);
  }
  constexpr void take_operand(int i, const node& n, int k, const sharding& held) {
    const int o = n.operands[k];
    int same = 0, same_root = 0;  // the first operand that is the same value, and the first with the same root
    while (n.operands[same] != o) ++same;
    while (known_.book.root_of(n.operands[same_root]) != known_.book.root_of(o)) ++same_root;
    take(64 * same + same_root);
    take(readers_alike(known_, i, k));
    const auto& readers = known_.readers_of(o);
    take((readers.size() > 1 ? 2 : 0) + (!readers.empty() && readers[0] == o ? 1 : 0));
    take(known_.preferred_of(o));
    take_forms(o);
    if (held.partial != 0) take(is_looked_up(known_, o) ? 1 : 0);
    if (readers.size() < 2 || !known_.book.has_forms(o)) return;
    for (const auto& preference : readers_.of(known_, o))
      if (preference.last > i) take(preference.wanted);
  }
  /// Adds the forms of value `o` to the key. If the value can be recomputed, adds the forms of its operand in the same
  /// way.
  constexpr void take_forms(int o) {
    for (int steps = 0; steps < most_made_again; ++steps) {
      const node& root = known_.at(known_.book.root_of(o));
      take_operator(root);
      for (int v = known_.book.first_of(o); v >= 0; v = known_.book.values[v].next) take(known_.book.layout_of(v));
      if (root.operands.count != 1 || !facts_of(root.op).is_made_again(root)) return;
      o = root.operands[0];
    }
    take(o);  // the chain is too long: its key equals no other key
  }

  static constexpr std::size_t most_looked_at = 64;
  static constexpr int most_made_again = 8;

  const form_prices& known_;
  reader_preferences& readers_;
  std::uint64_t key_ = 0;
  vec<entry> entries_;
};

}  // namespace gspmd::detail
