// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/passes/lower/step_state.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Lets steps on the same rows recompute a sum or a difference instead of reading it. One operand is an array of rows
/// that is in the cache. The other operand has one element for each row or for each column.
///
///   layer norm      y = (x - m) * s, after sums of (x - m)^2      x - m has no memory; both loops read x
///
/// The result has the same bits. The operands that are read instead have the same number of bytes, and need no
/// additional memory.
class row_recomputer {
 public:
  /// `last`: by memory, the last step that reads it.
  constexpr row_recomputer(step_state& state, const vec<int>& last) : plan_(state.out), base_(state.base), last_(last) {}

  /// Changes steps [begin, end). Returns false if nothing changes.
  constexpr bool run(int begin, int end) {
    bool has_changed = false;
    for (int i = begin; i < end; ++i)
      for (int k = 0; fuses(i) && k < group(i).stores.count;)
        if (is_cheap(i, k, end)) {
          for (int reader = i + 1; reader < end; ++reader) compute_again(reader, i, k);
          drop(i, k);
          has_changed = true;
        } else {
          ++k;
        }
    return has_changed;
  }

  /// Lets loops recompute a sum or a product of values that they read anyway. The loops of a gradient do so with
  /// values of the forward pass:
  ///
  ///   u = a * x; v = u * x      stored: x, u, v; a gradient that reads x, u and v then reads only x
  ///
  /// The value is no longer stored if all its users are such loops. No additional memory is needed.
  constexpr void run_everywhere() {
    for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i)
      for (int k = fuses(i) && group(i).stores.count > 1 ? group(i).stores.count : 0; k-- > 0;)
        if (group(i).stores.count > 1 && is_read_beside_its_operands(i, k)) {
          const int end = last_[base_[result(i, store(i, k).slot)]];
          for (int reader = i + 1; reader <= end; ++reader) compute_again(reader, i, k);
          drop(i, k);
        }
  }

 private:
  using loop_ops = vec<scalar_op>;

  [[nodiscard]] constexpr bool fuses(int step) const { return facts_of(plan_.steps[step]).role == step_role::fuses_operators; }
  [[nodiscard]] constexpr const planned_group& group(int step) const {
    return table_of<planned_group>(plan_)[plan_.steps[step].spec];
  }
  [[nodiscard]] constexpr const scalar_op& op(int step, int k) const {
    return table_of<scalar_op>(plan_)[group(step).ops.begin + k];
  }
  [[nodiscard]] constexpr const fused_store& store(int step, int k) const {
    return table_of<fused_store>(plan_)[group(step).stores.begin + k];
  }
  [[nodiscard]] constexpr int operand(int step, int k) const { return plan_.slots[plan_.steps[step].operands.begin + k]; }
  [[nodiscard]] constexpr bool reads(int step, int k, int v) const { return base_[operand(step, k)] == base_[v]; }
  [[nodiscard]] constexpr int result(int step, int k) const { return plan_.slots[plan_.steps[step].results.begin + k]; }
  [[nodiscard]] constexpr bool is_dense_load(int step, const scalar_op& o) const {
    return o.is_load() && !o.is_at_offset() && is_dense(group(step).loop, o.strides);
  }

  /// Returns the value that a step loads or stores at operator `place`; -1 if it does neither.
  [[nodiscard]] constexpr int value_at(int step, int place) const {
    if (op(step, place).is_load()) return is_dense_load(step, op(step, place)) ? operand(step, op(step, place).slot) : -1;
    for (int k = 0; k < group(step).stores.count; ++k)
      if (store(step, k).op == place) return result(step, store(step, k).slot);
    return -1;
  }
  [[nodiscard]] constexpr const scalar_op* dense_load_of(int step, int v, dtype type) const {
    for (int k = 0; k < group(step).ops.count; ++k)
      if (is_dense_load(step, op(step, k)) && reads(step, op(step, k).slot, v) && op(step, k).type == type) return &op(step, k);
    return nullptr;
  }
  [[nodiscard]] constexpr bool writes(int step, int v) const {
    for (int k = 0; k < plan_.steps[step].results.count; ++k)
      if (base_[result(step, k)] == base_[v]) return true;
    return false;
  }
  /// Returns true if `reader` loads the same elements that `step` loads or stores at operator `place`, or if that is a
  /// constant.
  [[nodiscard]] constexpr bool finds(int reader, int step, int place) const {
    if (op(step, place).is_constant()) return true;
    const int v = value_at(step, place);
    if (v < 0 || dense_load_of(reader, v, op(step, place).type) == nullptr) return false;
    for (int other = step + 1; other < reader; ++other)
      if (writes(other, v)) return false;
    return true;
  }
  [[nodiscard]] constexpr bool is_read_beside_its_operands(int step, int k) const {
    const planned_group& own = group(step);
    const int v = result(step, store(step, k).slot), end = last_[base_[v]];
    const scalar_op& made = op(step, store(step, k).op);
    if (own.reductions.count > 0 || own.margins.count > 0 || base_[v] != v || end >= static_cast<int>(plan_.steps.size()) ||
        saturating_multiply(elements(own.loop), bytes_of(made.type)) < least_recomputed_bytes)
      return false;
    if (made.op.loop().role == loop_facts::role_class::other) return false;
    bool is_read = false;
    for (int reader = step + 1; reader <= end; ++reader) {
      if (facts_of(plan_.steps[reader]).work == step_work::controls || writes(reader, v)) return false;
      for (int o = 0; o < plan_.steps[reader].operands.count; ++o) {
        if (!reads(reader, o, v)) continue;
        const planned_group* const loop = fuses(reader) ? &group(reader) : nullptr;
        if (loop == nullptr ||
            !(loop->loop == own.loop || (loop->cut == 0 && own.cut == 0 && elements(loop->loop) == elements(own.loop))) ||
            !reads_densely(reader, o, loop->loop))
          return false;
        is_read = true;
        for (const int a : made.args)
          if (!finds(reader, step, a)) return false;
      }
    }
    return is_read;
  }

  [[nodiscard]] constexpr bool is_cheap(int step, int k, int end) const {
    const planned_group& own = group(step);
    const int v = result(step, store(step, k).slot);
    if (own.stores.count < 2 || own.loop.count != 2 || last_[v] >= end) return false;
    for (int f = own.reductions.begin; f < own.reductions.begin + own.reductions.count; ++f)
      if (table_of<loop_reduction>(plan_)[f].stored == store(step, k).slot) return false;
    const scalar_op& made = op(step, store(step, k).op);
    if (made.op.loop().role != loop_facts::role_class::sum) return false;
    int rows = 0;
    for (const int a : made.args) {
      const scalar_op& from = op(step, a);
      if (is_dense_load(step, from)) ++rows;
      else if (!from.is_constant() && (!from.is_load() || from.is_at_offset())) return false;
    }
    if (rows != 1) return false;
    for (int reader = step + 1; reader < end; ++reader)
      for (int o = 0; o < plan_.steps[reader].operands.count; ++o)
        if (reads(reader, o, v) && (!reads_densely(reader, o, own.loop) || reads_other_rows(reader, step, made))) return false;
    return true;
  }
  /// Returns true if `reader` reads the rows of an operand of `made` with another stride, so that it could not read
  /// both by rows.
  [[nodiscard]] constexpr bool reads_other_rows(int reader, int maker, const scalar_op& made) const {
    for (const int a : made.args) {
      const scalar_op& from = op(maker, a);
      if (!from.is_load()) continue;
      for (int k = 0; k < group(reader).ops.count; ++k) {
        const scalar_op& o = op(reader, k);
        if (o.is_load() && reads(reader, o.slot, operand(maker, from.slot)) && o.strides[0] != from.strides[0]) return true;
      }
    }
    return false;
  }
  [[nodiscard]] constexpr bool reads_densely(int step, int slot, const extents& loop) const {
    if (!fuses(step) || !(group(step).loop == loop) || group(step).margins.count > 0) return false;
    for (int k = 0; k < group(step).ops.count; ++k)
      if (op(step, k).is_load() && op(step, k).slot == slot && !is_dense_load(step, op(step, k))) return false;
    return true;
  }

  /// Lets `reader` compute the k-th result that `maker` stores instead of loading it.
  constexpr void compute_again(int reader, int maker, int k) {
    const int v = result(maker, store(maker, k).slot);
    vec<int> operands, slots;
    for (int o = 0; o < plan_.steps[reader].operands.count; ++o) {
      slots.push_back(static_cast<int>(operands.size()));
      if (!reads(reader, o, v)) operands.push_back(operand(reader, o));
    }
    if (operands.size() == slots.size()) return;
    loop_ops ops;
    vec<int> place;
    const auto add = [&](const scalar_op& o) {
      for (std::size_t known = 0; known < ops.size(); ++known)
        if (ops[known].is_load() && ops[known] == o) return static_cast<int>(known);
      ops.push_back(o);
      return static_cast<int>(ops.size()) - 1;
    };
    const auto slot_of = [&](int value) {
      for (std::size_t o = 0; o < operands.size(); ++o)
        if (base_[operands[o]] == base_[value]) return static_cast<std::int16_t>(o);
      operands.push_back(value);
      return static_cast<std::int16_t>(operands.size() - 1);
    };
    for (int i = 0; i < group(reader).ops.count; ++i) {
      scalar_op o = op(reader, i);
      if (o.is_load() && reads(reader, o.slot, v)) {
        scalar_op again = op(maker, store(maker, k).op);
        for (auto& a : again.args) {
          scalar_op from = op(maker, a);
          const int had = from.is_load() ? operand(maker, from.slot) : value_at(maker, a);
          if (const scalar_op* known = had < 0 ? nullptr : dense_load_of(reader, had, from.type)) from = *known;
          if (from.is_load()) from.slot = slot_of(had);
          a = static_cast<std::int16_t>(add(from));
        }
        place.push_back(add(again));
        continue;
      }
      if (o.is_load()) o.slot = static_cast<std::int16_t>(slots[o.slot]);
      for (auto& a : o.args) a = static_cast<std::int16_t>(place[a]);
      place.push_back(add(o));
    }
    planned_group changed = group(reader);
    const table_range stores = changed.stores;
    auto& all = table_of<fused_store>(plan_);
    changed.stores.begin = static_cast<int>(all.size());
    for (int s = stores.begin; s < stores.begin + stores.count; ++s) {
      const fused_store from = all[s];
      all.push_back(fused_store{static_cast<std::int16_t>(place[from.op]), from.slot});
    }
    set(reader, changed, ops);
    plan_.steps[reader].operands = listed(operands);
  }

  /// Removes the k-th store of a step.
  constexpr void drop(int step, int k) {
    const fused_store dropped = store(step, k);
    planned_group changed = group(step);
    const auto moved = [&](std::int16_t slot) { return static_cast<std::int16_t>(slot > dropped.slot ? slot - 1 : slot); };
    auto& stores = table_of<fused_store>(plan_);
    const table_range before = changed.stores;
    changed.stores = {static_cast<int>(stores.size()), before.count - 1};
    for (int s = 0; s < before.count; ++s) {
      const fused_store from = stores[before.begin + s];
      if (s != k) stores.push_back(fused_store{from.op, moved(from.slot)});
    }
    auto& reductions = table_of<loop_reduction>(plan_);
    const table_range reduced = changed.reductions;
    changed.reductions.begin = static_cast<int>(reductions.size());
    for (int f = reduced.begin; f < reduced.begin + reduced.count; ++f) {
      loop_reduction from = reductions[f];
      from.slot = moved(from.slot);
      from.stored = moved(from.stored);
      reductions.push_back(from);
    }
    table_of<planned_group>(plan_).push_back(changed);
    vec<int> results;
    for (int r = 0; r < plan_.steps[step].results.count; ++r)
      if (r != dropped.slot) results.push_back(result(step, r));
    plan_.steps[step].spec = static_cast<int>(table_of<planned_group>(plan_).size()) - 1;
    plan_.steps[step].results = listed(results);
  }

  constexpr void set(int step, planned_group& changed, const loop_ops& ops) {
    auto& all = table_of<scalar_op>(plan_);
    changed.ops = {static_cast<int>(all.size()), static_cast<int>(ops.size())};
    for (const auto& o : ops) all.push_back(o);
    table_of<planned_group>(plan_).push_back(changed);
    plan_.steps[step].spec = static_cast<int>(table_of<planned_group>(plan_).size()) - 1;
  }
  constexpr table_range listed(const vec<int>& values) {
    const table_range range{static_cast<int>(plan_.slots.size()), static_cast<int>(values.size())};
    for (const int v : values) plan_.slots.push_back(v);
    return range;
  }

  plan& plan_;
  const vec<int>& base_;
  const vec<int>& last_;
};

}  // namespace gspmd::detail
