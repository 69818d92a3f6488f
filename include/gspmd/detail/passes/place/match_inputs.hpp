// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Finds the outputs that may be written to the memory of an input. An elementwise loop reads all operands at an index
/// before it writes there. So each output that the loop computes may overwrite any input that the loop reads densely
/// and for the last time. Type, shape and sharding must be equal. The planner puts nothing else into these outputs, so
/// that the caller can choose (can_alias.hpp).
///
/// `shared_inputs` is one choice: first, outputs are matched with the inputs that they update; then the rest, in
/// order. For Adam:
///
///   m1 = b * m + (1 - b) * g       m, g -> m1, and m is read in fewer places: m1 updates m
///   v1 = c * v + (1 - c) * g * g   v    -> v1
///   p1 = p - r * m1 / sqrt(v1)     p    -> p1: its other operands are read by earlier outputs too
class input_matcher {
 public:
  /// `base`: by value, the value whose memory it shares. `first`, `last`: by base value, the step that computes it and
  /// the last step that reads it. Sets `keeps_input`, by output.
  constexpr input_matcher(plan& p, const vec<int>& base, const vec<int>& first, const vec<int>& last,
                          vec<std::uint8_t>& keeps_input)
      : plan_(p), tables_(plan_view(p)), base_(base), first_(first), last_(last), keeps_input_(keeps_input) {}

  constexpr void run() {
    plan_.shared_inputs.resize(plan_.outputs.size(), -1);
    keeps_input_.resize(plan_.outputs.size(), 0);
    readers_.resize(plan_.values.size(), 0);
    for (const auto& s : plan_.steps)
      for (int k = 0; k < s.operands.count; ++k) ++readers_[operand(s, k)];
    vec<std::uint8_t> is_met(plan_.steps.size(), 0);
    for (const int output : plan_.outputs) {
      const int i = first_[base_[output]];
      if (i < 0 || is_met[i] != 0 || facts_of(plan_.steps[i]).role != step_role::fuses_operators) continue;
      is_met[i] = 1;
      if (find_inputs(i)) match_outputs(i);
    }
  }

 private:
  struct made_output {
    int number = 0;
    int kind = 0;
    int updated = -1;  // the operand that it updates; -1: none
  };

  [[nodiscard]] constexpr int operand(const plan_step& s, int k) const { return base_[plan_.slots[s.operands.begin + k]]; }

  /// Lists the inputs that step `i` is the last to read. Returns false if there are no such inputs.
  constexpr bool find_inputs(int i) {
    const auto& s = plan_.steps[i];
    kinds_.clear();
    kind_of_.clear();
    kind_of_.resize(static_cast<std::size_t>(s.operands.count), -1);
    bool any = false;
    for (int k = 0; k < s.operands.count; ++k) {
      const int v = operand(s, k);
      if (plan_.values[v].where.where != memory_place::kind::input || last_[v] != i) continue;
      kind_of_[k] = 0;
      any = true;
    }
    if (!any) return false;
    kept_.clear();
    kept_.resize(static_cast<std::size_t>(s.operands.count), 0);
    facts_of(s).mark_kept(tables_, s, kept_.data());
    for (int k = 0; k < s.operands.count; ++k) {
      if (kept_[k] != 0) kind_of_[k] = -1;
      if (kind_of_[k] < 0) continue;
      kind_of_[k] = find_kind(operand(s, k));
      if (kind_of_[k] == static_cast<int>(kinds_.size())) kinds_.push_back(operand(s, k));
    }
    return !kinds_.empty();
  }
  /// Returns the index in kinds_ of a value like `v`, or the size of kinds_.
  [[nodiscard]] constexpr int find_kind(int v) const {
    const auto& value = plan_.values[v];
    int kind = 0;
    for (; kind < static_cast<int>(kinds_.size()); ++kind) {
      const auto& known = plan_.values[kinds_[kind]];
      if (known.type == value.type && known.local == value.local && known.layout == value.layout) break;
    }
    return kind;
  }

  constexpr void match_outputs(int i) {
    const auto& s = plan_.steps[i];
    const auto& group = table_of<planned_group>(plan_)[s.spec];
    const auto updated = find_updated(s);
    const auto& stores = table_of<fused_store>(plan_);
    vec<made_output> outputs;
    for (int k = 0; k < group.stores.count; ++k) {
      const int v = base_[plan_.slots[s.results.begin + stores[group.stores.begin + k].slot]];
      const auto& where = plan_.values[v].where;
      if (where.where != memory_place::kind::output || first_[v] != i) continue;
      const int kind = find_kind(v);
      if (kind == static_cast<int>(kinds_.size())) continue;
      keeps_input_[where.at] = 1;
      outputs.push_back(made_output{static_cast<int>(where.at), kind, updated[k]});
    }
    for (const auto& out : outputs)
      if (out.updated >= 0 && kind_of_[out.updated] == out.kind) match(s, out, out.updated);
    vec<int> next(kinds_.size(), 0);  // by kind: the next operand to try
    for (const auto& out : outputs) {
      if (plan_.shared_inputs[out.number] >= 0) continue;
      int& k = next[out.kind];
      while (k < s.operands.count && kind_of_[k] != out.kind) ++k;
      if (k < s.operands.count) match(s, out, k);
    }
  }
  constexpr void match(const plan_step& s, const made_output& out, int k) {
    plan_.shared_inputs[out.number] = input_number(s, k);
    kind_of_[k] = -1;
  }
  [[nodiscard]] constexpr int input_number(const plan_step& s, int k) const {
    return static_cast<int>(plan_.values[operand(s, k)].where.at);
  }

  /// Returns for each store of a loop the operand that it updates.
  [[nodiscard]] constexpr vec<int> find_updated(const plan_step& s) const {
    const auto& group = table_of<planned_group>(plan_)[s.spec];
    const int none = group.stores.count;
    vec<int> user(static_cast<std::size_t>(group.ops.count), none);  // by register: the first store that depends on it
    vec<int> uses(static_cast<std::size_t>(group.ops.count), 0);
    const auto& stores = table_of<fused_store>(plan_);
    const auto& ops = table_of<scalar_op>(plan_);
    for (int k = none; k-- > 0;) user[stores[group.stores.begin + k].op] = k;
    vec<int> updated(static_cast<std::size_t>(none), -1);
    vec<int> updated_places(static_cast<std::size_t>(none), 0);
    for (int r = group.ops.count; r-- > 0;) {
      const auto& op = ops[group.ops.begin + r];
      for (const int a : op.args) {
        ++uses[a];
        if (user[a] > user[r]) user[a] = user[r];
      }
      const int k = user[r];
      if (!op.is_load() || kind_of_[op.slot] < 0 || k == none) continue;
      const int other = updated[k];
      const int places = uses[r] + readers_[operand(s, op.slot)];
      if (other >= 0 && updated_places[k] < places) continue;
      if (other >= 0 && updated_places[k] == places && input_number(s, other) < input_number(s, op.slot)) continue;
      updated[k] = op.slot;
      updated_places[k] = places;
    }
    return updated;
  }

  plan& plan_;
  table_views tables_;  // the tables of the steps
  const vec<int>& base_;
  const vec<int>& first_;
  const vec<int>& last_;
  vec<std::uint8_t>& keeps_input_;
  vec<int> readers_;        // by value: the number of steps that read it
  vec<std::uint8_t> kept_;  // by operand of the step: no output may overwrite it
  vec<int> kinds_;          // one value of each kind, of the inputs that the step is the last to read
  vec<int> kind_of_;        // by operand of the step: its index in kinds_; -1: no such input, or matched
};

}  // namespace gspmd::detail
