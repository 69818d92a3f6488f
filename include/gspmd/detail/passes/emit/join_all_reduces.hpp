// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "gspmd/detail/passes/emit/lazy_ops.hpp"
#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Small all_reduces over the same axes become one (XLA: AllReduceCombiner).
///
///   a = all_reduce(p); b = all_reduce(q); c = f(a); d = g(b)    ->    a, b = all_reduce(p, q); c = f(a); d = g(b)
///
/// 1. An all_reduce of at most most_joined_bytes waits in the group of its axes, element type and monoid, if it is the only
///    reader of its operand, and the operand is computed in the same stretch: between two ends of loops, branches and bodies.
/// 2. Elementwise operators, broadcasts and reshapes that read what waits wait too: the scheduler would put them off anyway.
/// 3. The first other operator that reads what waits, the end of the stretch and a full group let the group go: its all_reduces
///    stand one after the other (instruction::joined), then follows what waited for them alone.
///
/// The same bytes are sent in fewer messages, and every element is combined in the same order. The memory planner lays the values
/// of a group next to each other, so that a device may hold up to most_joined_bytes_in_all more for each such message.
class all_reduce_joiner {
 public:
  constexpr all_reduce_joiner(const graph& g, const mesh_shape& mesh, local_program& p) : graph_(g), mesh_(mesh), program_(p) {}

  constexpr void run() {
    if (!any_two()) return;
    const auto count = program_.values.size();
    maker_.resize(count, -1);
    uses_.resize(count, 0);
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const auto& op = program_.ops[i];
      if (op.result >= 0) maker_[op.result] = static_cast<int>(i);
      for (const int o : op.operands) ++uses_[o];
    }
    for (const int o : program_.outputs) ++uses_[o];
    group_of_.resize(program_.ops.size(), -1);
    walk(false);
    int last = -1;
    for (const int size : sizes_)
      if (size > 1) last = size;
    if (last > 1) walk(true);
  }

 private:
  static constexpr int most_groups = 64;  // that wait at once: bits of a word

  /// Those of one kind: all can be in one message.
  struct kind_of {
    axis_mask axes = 0;
    dtype type = dtype::f32;
    monoid reduced_by = monoid::add;
    friend constexpr bool operator==(const kind_of&, const kind_of&) = default;
  };
  struct group {
    bool is_open = false;
    kind_of kind;
    std::int64_t bytes = 0;
    int number = 0;
    vec<int> members;
    vec<int> followers;  // what waits for this group first of all, in order
  };

  [[nodiscard]] constexpr std::int64_t size_of(int v) const {
    return elements(program_.value(v).local) * bytes_of(program_.value(v).type);
  }
  [[nodiscard]] constexpr bool is_small(const instruction& op) const {
    if (op.what != instruction_kind::reduce || op.collective != collective_kind::all_reduce || mesh_.size_of(op.axes) == 1)
      return false;
    if (graph_.nodes[static_cast<std::size_t>(op.node)].local_axes != 0) return false;  // written as it is
    const auto bytes = size_of(op.result);
    return bytes > 0 && bytes <= most_joined_bytes;
  }
  [[nodiscard]] constexpr bool any_two() const {
    int count = 0;
    for (const auto& op : program_.ops) count += is_small(op) ? 1 : 0;
    return count > 1;
  }
  [[nodiscard]] constexpr kind_of kind(const instruction& op) const {
    const auto& from = program_.value(op.operands[0]);
    return {op.axes, from.type, from.layout.reduced_by};
  }

  /// Whether the memory of the operand can be chosen freely, and overwritten: it is made in this stretch for this reader alone.
  [[nodiscard]] constexpr bool can_wait(const instruction& op) const {
    if (!is_small(op)) return false;
    int v = op.operands[0];
    for (;;) {
      const int i = maker_[v];
      if (i < stretch_ || uses_[v] != 1) return false;
      const auto& made = program_.ops[i];
      if (!is_alias(graph_, mesh_, program_, made))
        return made.what != instruction_kind::control && made.what != instruction_kind::copy &&
               !(made.what == instruction_kind::reduce && made.collective == collective_kind::all_reduce);
      v = made.operands[0];
    }
  }

  /// Visits the operators in order: the first time to number the groups, the second to move those of more than one.
  constexpr void walk(bool moves) {
    moves_ = moves;
    waits_for_.clear();
    waits_for_.resize(program_.values.size(), 0);
    stretch_ = 0;
    if (moves_) {
      order_.reserve(program_.ops.size());
      joined_.resize(program_.ops.size(), 0);
    }
    for (int i = 0; i < static_cast<int>(program_.ops.size()); ++i) {
      const auto& op = program_.ops[i];
      if (op.what == instruction_kind::control || op.what == instruction_kind::copy) {
        let_go(~std::uint64_t{0});
        put(i);
        stretch_ = i + 1;
        continue;
      }
      std::uint64_t waits = 0;
      for (const int o : op.operands) waits |= waits_for_[o];
      if (is_lazy(graph_, op) || is_alias(graph_, mesh_, program_, op)) {
        if (waits == 0) {
          put(i);
        } else {
          waits_for_[op.result] = waits;
          groups_[first_bit(waits)].followers.push_back(i);
        }
        continue;
      }
      let_go(waits);
      if (moves_ ? group_of_[i] >= 0 && sizes_[group_of_[i]] > 1 : can_wait(op)) join(i);
      else put(i);
    }
    let_go(~std::uint64_t{0});
    if (!moves_) return;
    vec<instruction> ops;
    ops.reserve(order_.size());
    for (const int i : order_) {
      ops.push_back(program_.ops[i]);
      ops.back().joined = joined_[i] != 0;
    }
    program_.ops = std::move(ops);
  }

  constexpr void put(int i) {
    if (moves_) order_.push_back(i);
  }

  constexpr void join(int i) {
    const auto& op = program_.ops[i];
    const kind_of k = kind(op);
    const auto bytes = size_of(op.result);
    int place = -1;
    for (int g = 0; g < static_cast<int>(groups_.size()); ++g)
      if (groups_[g].is_open && groups_[g].kind == k) place = g;
    // What a full group frees may be what another one of the kind begins with: look again.
    if (place >= 0 && groups_[place].bytes + bytes > most_joined_bytes_in_all) {
      let_go(std::uint64_t{1} << place);
      place = -1;
    }
    if (place < 0) {
      place = open_group();
      auto& g = groups_[place];
      g.is_open = true;
      g.kind = k;
      g.bytes = 0;
      g.number = static_cast<int>(sizes_.size());
      if (!moves_) sizes_.push_back(0);
    }
    auto& g = groups_[place];
    g.bytes += bytes;
    g.members.push_back(i);
    if (!moves_) {
      group_of_[i] = g.number;
      ++sizes_[g.number];
    }
    waits_for_[op.result] = std::uint64_t{1} << place;
  }
  constexpr int open_group() {
    for (int g = 0; g < static_cast<int>(groups_.size()); ++g)
      if (!groups_[g].is_open) return g;
    if (static_cast<int>(groups_.size()) == most_groups) {
      let_go(1);
      return 0;
    }
    groups_.push_back({});
    return static_cast<int>(groups_.size()) - 1;
  }

  static constexpr int first_bit(std::uint64_t bits) {
    int i = 0;
    while ((bits >> i & 1U) == 0) ++i;
    return i;
  }

  constexpr void let_go(std::uint64_t which) {
    for (int k = 0; which != 0 && k < static_cast<int>(groups_.size()); ++k) {
      if ((which >> k & 1U) == 0 || !groups_[k].is_open) continue;
      auto& g = groups_[k];
      for (const int m : g.members) {
        if (moves_) joined_[m] = m != g.members.front() ? 1 : 0;
        put(m);
        waits_for_[program_.ops[m].result] = 0;
      }
      for (const int f : g.followers) {
        auto& waits = waits_for_[program_.ops[f].result];
        waits = 0;  // for what its operands wait for still
        for (const int o : program_.ops[f].operands) waits |= waits_for_[o];
        if (waits == 0) put(f);
        else groups_[first_bit(waits)].followers.push_back(f);
      }
      g.members.clear();
      g.followers.clear();
      g.is_open = false;
    }
  }

  const graph& graph_;
  const mesh_shape& mesh_;
  local_program& program_;
  vec<int> maker_;                // by value: the op that makes it; -1: an input
  vec<int> uses_;                 // by value
  vec<int> group_of_;             // by op: the number of its group; -1: none
  vec<int> sizes_;                // by number of the group
  vec<group> groups_;             // that wait, at most most_groups at once
  vec<std::uint64_t> waits_for_;  // by value: the groups it needs
  vec<int> order_;
  vec<std::uint8_t> joined_;  // by op
  int stretch_ = 0;           // where it begins
  bool moves_ = false;
};

}  // namespace gspmd::detail
