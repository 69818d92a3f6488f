// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/passes/choose/choose_state.hpp"
#include "gspmd/detail/passes/choose/loop_sums.hpp"

namespace gspmd::detail {

/// The differences between a new plan and the plan that is replayed for it.
struct differences {
  vec<std::uint8_t> of;   // by node: replay::preferred, replay::lies_else
  vec<int> now;           // by form of the replayed plan: the same form in the new plan; -1: absent
  int last = 0;           // the last item that a difference reaches
  std::int64_t hope = 0;  // time that the plan spends around the changed values, a bound of the gain
  bool is_worse = false;  // the new plan is certainly no better
};

/// A complete plan that a new plan for the same program reuses. The new plan prefers other shardings for some values.
/// It copies the choices that no difference reaches, because a choice takes a hundred times as long as a copy.
///
///   a -> b -> c, d -> e; another sharding of b is preferred: chooses b and c again, copies a, d and e
struct replay {
  static constexpr int choice = 8;              // replayed items that count as one choice
  static constexpr std::uint8_t preferred = 1;  // of a node: another sharding is preferred
  static constexpr std::uint8_t lies_else = 2;  // of a node: its forms differ

  const choose_state& plan;
  differences& differs;

  [[nodiscard]] constexpr std::int64_t time_of(int i) const { return plan.marks[i + 1].time - plan.marks[i].time; }

  [[nodiscard]] constexpr std::int64_t least_of(int i) const { return plan.marks[i + 1].least - plan.marks[i].least; }

  /// Returns true if item `i` is the same as in `plan`, so that its choice can be copied.
  [[nodiscard]] constexpr bool is_same(const form_prices& known, int i) const {
    const int count = static_cast<int>(known.program.nodes.size());
    if (i >= count)
      return (differs.of[known.book.root_of(known.program.outputs[static_cast<std::size_t>(i - count)])] & lies_else) == 0;
    const node& n = known.at(i);
    const origin made = facts_of(n.op).made;
    if (made == origin::given || made == origin::source) return true;
    if ((differs.of[i] & preferred) != 0 || n.results != 1 || made == origin::region || made == origin::result) return false;
    for (const int o : n.operands)
      if ((differs.of[known.book.root_of(o)] & lies_else) != 0) return false;
    return operand_summed_up(known.program, known.uses, i) < 0;
  }
  /// Compares the forms that item `i` made with those of `plan`. Returns true if the new plan, with the costs in
  /// `state`, is certainly no better. This is known early if the new plan loses too much, or after the last item that a
  /// difference reaches.
  constexpr bool is_decided(const form_prices& known, int i, const choose_state& state) {
    const auto& made = state.book.values;
    const auto& had = plan.book.values;
    const int begin = state.marks[i].values, end = static_cast<int>(made.size());
    const int from = plan.marks[i].values, to = plan.marks[i + 1].values;
    bool alike = end - begin == to - from;
    for (int k = 0; k < to - from && alike; ++k)
      alike = made[begin + k].node == had[from + k].node && made[begin + k].layout == had[from + k].layout;
    for (int k = 0; k < to - from; ++k) differs.now.push_back(alike ? begin + k : -1);
    if (!alike) {
      for (int k = begin; k < end; ++k) note(known, made[k].node);
      for (int k = from; k < to; ++k) note(known, had[k].node);
    }
    if (state.time >= plan.time || state.forced > plan.forced) return differs.is_worse = true;
    const auto gained = plan.marks[i + 1].time - state.time;
    if (gained < 0 && -gained >= differs.hope) return differs.is_worse = true;
    if (i < differs.last || known.book.depth() > 0) return false;
    const auto& mark = plan.marks[i + 1];
    const auto time = add_times(state.time, plan.time - mark.time);
    return differs.is_worse = time >= plan.time || state.forced + plan.forced - mark.forced > plan.forced;
  }
  /// Records that the forms of node `i` differ, and that the difference reaches its users.
  constexpr void note(const form_prices& known, int i) {
    const int root = known.book.root_of(i);
    if ((differs.of[root] & lies_else) != 0) return;
    differs.of[root] |= lies_else;
    reach(known, root);
  }
  constexpr void reach(const form_prices& known, int i) {
    const int count = static_cast<int>(known.program.nodes.size());
    for (const int reader : known.readers_of(i)) {
      const int at = reader == i ? count + static_cast<int>(known.program.outputs.size()) - 1 : reader;
      if (at > differs.last) differs.last = at;
      if (reader == i) continue;
      const node& n = known.at(reader);
      const auto& facts = facts_of(n.op);
      if (facts.made == origin::region) differs.last = count + static_cast<int>(known.program.outputs.size()) - 1;
      const bool has_its_form = n.op == opcode::loop_result && n.operands[0] == i;  // the result of a carried value
      if (facts.made == origin::renamed) reach(known, reader);
      else if (has_its_form || (facts.made == origin::shards && facts.is_made_again(n))) note(known, reader);
    }
  }
};

}  // namespace gspmd::detail
