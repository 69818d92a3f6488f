// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/passes/choose/choose_state.hpp"
#include "gspmd/detail/passes/choose/loop_sums.hpp"

namespace gspmd::detail {

/// How another plan differs from the one that is replayed for it.
struct differences {
  vec<std::uint8_t> of;   // by node, see replay::preferred
  vec<int> now;           // by form of the plan: the same one of the other plan; -1: it has none
  int last = 0;           // the last item that something which differs reaches
  std::int64_t hope = 0;  // what the plan spends around what was changed: no more is gained there
  bool is_worse = false;  // the other plan, as is found out before its end
};

/// A complete plan. Another plan for the same program, in which other shardings of some values are preferred, takes over its choices where
/// nothing that differs reaches: a choice takes a hundred times as long.
struct replay {
  static constexpr int choice = 8;              // one choice allows for as much of an evaluation as so many replayed items
  static constexpr std::uint8_t preferred = 1;  // of a node: another sharding is preferred
  static constexpr std::uint8_t lies_else = 2;  // its forms are others

  const choose_state& plan;
  differences& differs;

  [[nodiscard]] constexpr std::int64_t time_of(int i) const { return plan.marks[i + 1].time - plan.marks[i].time; }

  [[nodiscard]] constexpr std::int64_t least_of(int i) const { return plan.marks[i + 1].least - plan.marks[i].least; }

  /// Whether item `i` is what it is in `plan`.
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
  /// Compares the forms that item `i` made. Whether nothing after it can differ and `state`, which is to be as `plan` from here on,
  /// is no better.
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
  /// The forms of node `i` are others: what reads it is reached.
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
      const bool has_its_form = n.op == opcode::loop_result && n.operands[0] == i;  // what is carried
      if (facts.made == origin::renamed) reach(known, reader);
      else if (has_its_form || (facts.made == origin::shards && facts.is_made_again(n))) note(known, reader);
    }
  }
};

}  // namespace gspmd::detail
