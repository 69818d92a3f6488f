// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>

#include "gspmd/detail/ir/fused_collapse.hpp"
#include "gspmd/detail/passes/lower/computed_twice.hpp"
#include "gspmd/detail/passes/lower/loop_group.hpp"
#include "gspmd/detail/passes/lower/widening.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Builds loops from waiting elementwise operators when another operator needs their values.
///
/// A reduction of a waiting value waits too, until any step is added. Then the loop that computes the operand also
/// reduces it. The operand needs memory only if it has other users. Several reductions over the same dims share one
/// pass if one loop computes or reads their operands, as in sum(x) and sum(x * x). They also share one pass if they
/// have the same operand in memory.
///
/// A bf16 or f16 value that is converted to float is widened in each loop that reads it: see
/// step_state::is_widened_in_loops.
class loop_fuser {
 public:
  constexpr explicit loop_fuser(step_state& state) : s_(state), wide_(state) {}

  /// A value on the path of a walk from a user to its operands.
  struct visit {
    int value = 0;
    int next = 0;   // the next operand
    int stamp = 0;  // of the walk; each loop has its own stamp
    bool is_loop = false;
  };

  /// Stores `v` in memory: adds the loops whose results `v` reads, then the loop that computes `v`. The path is a
  /// vector and not the call stack, because a program can be a chain of any length.
  constexpr void need(int v) {
    reduce_all();
    compute(v);
  }
  constexpr void compute(int v) {
    begin_loop(v);
    while (!path_.empty()) {
      const visit top = path_.back();
      const instruction& op = s_.maker(top.value);
      if (top.next == op.operands.count) {
        path_.pop_back();
        if (top.is_loop) flush(top.value);
        continue;
      }
      ++path_.back().next;
      const int o = op.operands[top.next];
      if (!s_.waits(o)) {
        begin_loop(o);
      } else if (s_.waits_virtual(o)) {
        path_.push_back(visit{o, 0, top.stamp, false});
      } else if (!s_.is_virtual(op) && s_.program_.value(o).local == s_.program_.value(top.value).local &&
                 !is_drawn_apart(top.value, o)) {  // in the same loop
        if (s_.visited_[o] == top.stamp) continue;
        s_.visited_[o] = top.stamp;
        path_.push_back(visit{o, 0, top.stamp, false});
      } else {
        begin_loop(o);
      }
    }
  }
  /// Returns true if `v` must not be computed in the loop that computes `operand`: `v` chooses between polynomials,
  /// and the operand depends on random bits. Threefry makes 64 bits at a time, and no compiler vectorises a loop that
  /// does both. On 2^20 floats, normal takes 39 ms in one loop and 3.3 ms in two; sine and erf of uniform numbers take
  /// 15 ms and 7 ms.
  [[nodiscard]] constexpr bool is_drawn_apart(int v, int operand) const {
    constexpr std::size_t most_looked_at = 32;
    if (s_.node_of(s_.maker(v)).op.loop().vectors != loop_facts::vector_class::own_loop) return false;
    vec<int> open(1, operand);
    for (std::size_t k = 0; k < open.size() && k < most_looked_at; ++k) {
      if (!s_.waits(open[k])) continue;
      if (s_.node_of(s_.maker(open[k])).op.loop().vectors == loop_facts::vector_class::random_bits) return true;
      for (const int o : s_.maker(open[k]).operands) open.push_back(o);
    }
    return false;
  }
  constexpr void begin_loop(int v) {
    v = s_.base[v];
    if (!s_.waits(v)) return;
    s_.visited_[v] = ++s_.stamp_;
    path_.push_back(visit{v, 0, s_.stamp_, true});
  }

  // ---- reductions ----

  constexpr void wait(const waiting_reduction& r) {
    s_.reductions_.push_back(r);
    s_.waiting_[r.result] = 1;
  }
  /// Computes all waiting reductions in the order of their operands.
  constexpr void reduce_all() {
    if (s_.reductions_.empty()) return;
    const vec<waiting_reduction> all = std::move(s_.reductions_);
    s_.reductions_ = {};
    open_ = &all;
    for (std::size_t k = 0; k < all.size(); ++k) {
      const auto& f = all[k];
      if (!s_.waits(f.result)) continue;  // computed together with an earlier reduction
      next_ = k;
      if (s_.waits_virtual(f.operand)) {
        if (const int from = memory_behind(f.operand); from >= 0) compute(from);
        reduce_together(f);
        continue;
      }
      reduced_ = f.operand;
      reduced_dims_ = f.dims;
      if (const int beside = computed_beside(k); beside >= 0) reduced_ = beside;
      compute(reduced_);
      reduced_ = -1;
      wait_again();
      if (!s_.waits(f.result)) continue;
      reduce_together(f);
    }
    open_ = nullptr;
  }
  /// Returns the value that a chain of broadcasts reads; -1 for an iota or a constant.
  [[nodiscard]] constexpr int memory_behind(int v) const {
    int from = v;
    while (s_.waits_virtual(from) && s_.maker(from).operands.count > 0) from = s_.maker(from).operands[0];
    return s_.waits_virtual(from) ? -1 : from;
  }
  /// Marks the operators as waiting again that the last loop computed but did not store.
  constexpr void wait_again() {
    for (const int m : twice_) {
      s_.waiting_[m] = 1;
      s_.step_[m] = s_.register_[m] = -1;
      for (const int o : s_.maker(m).operands) ++s_.uses_[o];
    }
    twice_.clear();
  }
  /// Reduces a value that is in memory, or is read from memory through strides. All waiting reductions of the value
  /// over the same dims share one pass.
  constexpr void reduce_together(const waiting_reduction& first) {
    vec<waiting_reduction> same;
    for (std::size_t k = next_; k < open_->size() && same.size() < most_loop_reductions; ++k)
      if (const auto& f = (*open_)[k]; s_.waits(f.result) && f.operand == first.operand && f.dims == first.dims)
        same.push_back(f);
    for (const auto& f : same) s_.waiting_[f.result] = 0;
    const bool is_one_loop = same.size() > 1 || s_.waits_virtual(first.operand);
    if (is_one_loop && reduces_by_blocks(first.operand)) return reduce_as_read(same);
    for (const auto& f : same) reduce_stored(f);
  }
  /// Returns false for elements of an own type, whose sums read the operand from memory.
  [[nodiscard]] constexpr bool reduces_by_blocks(int v) const { return !is_own(s_.program_.value(v).type); }
  /// Computes the reductions `same` in one loop that reads their operand and reduces it by blocks.
  constexpr void reduce_as_read(const vec<waiting_reduction>& same) {
    const waiting_reduction& first = same[0];
    loop_group group(s_, s_.program_.value(first.operand).local);
    const int read = group.read(first.operand);
    vec<int> reduced;
    for (const auto& f : same) {
      reduced.push_back(wide_.like(f.result));
      group.reduce(read, reduced[reduced.size() - 1], reduction_spec{group.loop, f.dims, f.kind});
    }
    add_loop(group, first.op, first.operand, same, reduced);
  }
  /// Reduces a value in memory. If the type is narrow and the result is smaller, a loop widens and reduces the
  /// elements by blocks.
  constexpr void reduce_stored(const waiting_reduction& f) {
    const auto& v = s_.program_.value(f.operand);
    if (is_narrow(v.type) && elements(s_.program_.value(f.result).local) < elements(v.local)) return reduce_as_read({f});
    reduction_spec spec{v.local, f.dims, f.kind};
    const int rank = v.local.count;
    if (is_complex(v.type)) spec.in.push_back(2);
    const int from = widened(f.op, f.operand), to = wide_.like(f.result);
    compute(from);
    auto& s = s_.add_step(id_of<kernels::reduce>, f.op, entry_of(table_of<reduction_spec>(s_.out), spec), {from}, {to});
    s.type = part_of(s.type);
    for (int d = 0; d < rank; ++d)
      if ((f.dims & dim_bit(d)) != 0) s_.add_bound(s, d, f.operand, d);
    if (to != f.result) wide_.convert(f.op, to, f.result, has_ends(f.kind));
  }

  /// Returns `v` in the type that kernels use for its elements. If that is a wider type, stores `v` in memory and
  /// converts it.
  constexpr int widened(const instruction& op, int v) {
    const int made = wide_.like(v);
    if (made == v) return v;
    compute(v);
    wide_.convert(op, v, made, false);
    return made;
  }

  // ---- loops ----

  /// Lists the waiting operators that `v` depends on, operands first.
  constexpr void collect(int v, vec<int>& members, int stamp) {
    vec<visit> path;
    s_.visited_[v] = stamp;
    path.push_back(visit{v, 0, stamp, false});
    while (!path.empty()) {
      visit& top = path.back();
      const instruction& op = s_.maker(top.value);
      if (top.next == op.operands.count) {
        members.push_back(top.value);
        path.pop_back();
        continue;
      }
      const int o = op.operands[top.next++];
      if (!s_.waits(o) || s_.waits_virtual(o) || s_.visited_[o] == stamp) continue;
      s_.visited_[o] = stamp;
      path.push_back(visit{o, 0, stamp, false});
    }
  }

  /// Adds the waiting operators that read only values that are in memory or computed by the group, in the order of the
  /// program.
  constexpr void join(vec<int>& members, const extents& loop, int stamp) {
    const std::size_t collected = members.size();
    for (std::size_t m = 0; m < members.size(); ++m) {
      const int v = members[m];
      for (int r = s_.readers_from_[v]; r < s_.readers_from_[v + 1]; ++r) {
        const int w = s_.readers_[r];
        if (w < 0 || !s_.waits(w) || s_.visited_[w] == stamp || !can_join(w, stamp) || !(s_.program_.value(w).local == loop))
          continue;
        for (const int o : s_.maker(w).operands) {
          if (!s_.waits(o) || s_.visited_[o] == stamp || !s_.is_widened_in_loops(o)) continue;
          s_.visited_[o] = stamp;
          members.push_back(o);
        }
        s_.visited_[w] = stamp;
        members.push_back(w);
      }
    }
    std::size_t kept = collected;
    for (std::size_t m = collected; m < members.size(); ++m) {
      if (s_.is_widened_in_loops(members[m]) && !is_operand_in_group(members[m], stamp)) s_.visited_[members[m]] = 0;
      else members[kept++] = members[m];
    }
    members.resize(kept, 0);
    if (members.size() - collected > 1)
      std::sort(members.begin() + static_cast<std::ptrdiff_t>(collected), members.end(),
                [this](int a, int b) { return s_.maker_[a] < s_.maker_[b]; });
  }

  /// Returns true if an operator of the group reads `v`.
  [[nodiscard]] constexpr bool is_operand_in_group(int v, int stamp) const {
    for (int r = s_.readers_from_[v]; r < s_.readers_from_[v + 1]; ++r)
      if (const int w = s_.readers_[r]; w >= 0 && s_.waits(w) && s_.visited_[w] == stamp) return true;
    return false;
  }
  /// Returns true if a waiting operator that reads a value of the group can join the group. Each other operand must be
  /// ready, or be a widened value that the group can compute.
  [[nodiscard]] constexpr bool can_join(int v, int stamp) const {
    const auto& op = s_.maker(v);
    if (s_.is_virtual(op)) return false;
    for (const int o : op.operands)
      if ((s_.visited_[o] != stamp && !is_ready(o) && !can_widen(o, stamp)) || is_drawn_apart(v, o)) return false;
    return true;
  }
  /// Returns true if the group can compute the waiting `v` by widening elements that it computes or loads.
  [[nodiscard]] constexpr bool can_widen(int v, int stamp) const {
    if (!s_.waits(v) || !s_.is_widened_in_loops(v)) return false;
    const int narrow = s_.maker(v).operands[0];
    return s_.visited_[narrow] == stamp || is_ready(narrow);
  }
  [[nodiscard]] constexpr bool is_ready(int v) const {
    if (!s_.waits(v)) return !s_.waits(s_.base[v]);
    if (!s_.is_virtual(s_.maker(v))) return false;
    for (const int o : s_.maker(v).operands)
      if (!is_ready(o)) return false;
    return true;
  }

  /// Adds the loops that compute `v`. All operands from outside are already in memory.
  constexpr void flush(int v) {
    while (s_.waits(v) && !emit_loop(v)) {
    }
  }

  /// Adds one loop. Returns true if the loop computes `v`.
  constexpr bool emit_loop(int v) {
    const extents loop = s_.program_.value(v).local;
    const instruction op = s_.maker(v);
    loop_group group(s_, loop);
    vec<int> members;
    vec<waiting_reduction> reductions;
    vec<int> reduced;  // the results, in the type that the loop reduces
    bool computes = true;
    if (s_.is_virtual(op)) {
      members.push_back(v);
      s_.waiting_[v] = 0;  // for good: from now on, `v` is in memory
      const int reg = group.read_virtual(v, group.identity_dims());
      group.stores.push_back(fused_store{static_cast<std::int16_t>(reg), 0});
      group.results.push_back(v);
    } else {
      const int stamp = ++s_.stamp_;  // the operands may have been flushed meanwhile, with other stamps
      collect(v, members, stamp);
      const std::size_t collected = members.size();
      join(members, loop, stamp);
      find_computed_twice(v, members, collected);
      group.ops.reserve(2 * members.size());
      std::size_t count = 0;
      for (; count < members.size() && group.ops.size() + loop_group::most_of_one <= loop_group::most_registers; ++count)
        group.compute(members[count]);
      const bool is_whole = count == members.size();
      members.resize(count, 0);  // the rest waits for the next loop
      for (const int m : members) {
        s_.waiting_[m] = 0;
        s_.step_[m] = static_cast<int>(s_.out.steps.size());
      }
      for (const int m : members)
        for (const int o : s_.maker(m).operands) --s_.uses_[o];
      computes = !s_.waits(v);
      reductions = reductions_of(group, members, v, stamp);
      if (is_whole) leave_widened(members, v, reductions);
      for (const int m : members) {
        if (s_.uses_[m] == 0 || s_.waits(m) || is_computed_again(m)) continue;  // no step reads it from memory
        group.stores.push_back(
            fused_store{static_cast<std::int16_t>(s_.register_[m]), static_cast<std::int16_t>(group.results.size())});
        group.results.push_back(m);
      }
      for (const auto& f : reductions) {
        s_.waiting_[f.result] = 0;
        reduced.push_back(wide_.like(f.result));
        const int reg = s_.visited_[f.operand] == stamp ? s_.register_[f.operand] : group.read(f.operand);
        group.reduce(reg, reduced[reduced.size() - 1], reduction_spec{loop, f.dims, f.kind});
      }
      for (const int m : members)
        if (s_.waits(m)) s_.register_[m] = -1;
    }
    add_loop(group, op, v, reductions, reduced);
    return computes;
  }
  /// Marks the widened values as waiting that operators outside of the group read.
  constexpr void leave_widened(const vec<int>& members, int v, const vec<waiting_reduction>& reductions) {
    for (const int m : members) {
      if (!is_left_waiting(m, v, reductions)) continue;
      s_.waiting_[m] = 1;
      s_.step_[m] = -1;
      ++s_.uses_[s_.maker(m).operands[0]];
    }
  }
  /// Returns true if the loop for `v` leaves its member `m` waiting, because later loops widen the 16-bit elements
  /// themselves. The loop stores `v` unless it reduces `v`.
  [[nodiscard]] constexpr bool is_left_waiting(int m, int v, const vec<waiting_reduction>& reductions) const {
    if (s_.uses_[m] == 0 || is_computed_again(m) || !s_.is_widened_in_loops(m)) return false;
    if (m != v) return true;
    for (const auto& f : reductions)
      if (f.operand == m) return true;
    return false;
  }
  /// Adds the step of a loop over the shard of `v`. `reduced`: the results of its reductions, in the type that the
  /// loop reduces.
  constexpr void add_loop(loop_group& group, const instruction& op, int v, const vec<waiting_reduction>& reductions,
                          const vec<int>& reduced) {
    for (const int i : group.inputs) s_.slot_[s_.base[i]] = -1;

    planned_group planned;
    planned.loop = group.loop;
    const auto& made = s_.program_.value(v);  // all results have the layout of `v`
    dim_mask padded = padded_dims(s_.out.mesh, made.global, made.layout);
    bool keeps_dims = false;
    for (auto& s : group.stores) {
      s.given = static_cast<std::int16_t>(s_.given_of(group.results[s.slot], group.loop));
      keeps_dims = keeps_dims || s.given != 0;
    }
    planned.cut = collapse_loop(planned.loop, group.ops, padded, {group.margins.data(), group.margins.size()}, keeps_dims);
    auto& s = s_.add_step(id_of<kernels::fused>, op, group.entry_for(planned), group.inputs, group.results);
    for (const auto& b : group.index_offsets) {
      s_.out.bounds.push_back(b);
      ++s.bounds.count;
    }
    for (dim_mask cut = planned.cut; cut != 0; cut &= cut - 1, padded &= padded - 1)
      s_.add_bound(s, std::countr_zero(cut), v, std::countr_zero(padded));
    for (std::size_t k = 0; k < reductions.size(); ++k)
      if (reduced[k] != reductions[k].result)
        wide_.convert(reductions[k].op, reduced[k], reductions[k].result, has_ends(reductions[k].kind));
  }

  /// If later loops compute the operand of the next reduction again, stores its operators, the first `collected`
  /// members, in twice_. Then the only other members are those that a reduction needs.
  constexpr void find_computed_twice(int v, vec<int>& members, std::size_t collected) {
    if (v != reduced_) return;
    vec<waiting_reduction> reductions;
    for (std::size_t k = next_; k < open_->size(); ++k)
      if (const auto& f = (*open_)[k]; f.operand == v && is_like_next(f)) reductions.push_back(f);
    for (std::size_t m = 0; m < collected; ++m) twice_.push_back(members[m]);
    if (!computed_twice(s_).contains(v, twice_, reductions)) return twice_.clear();
    vec<int> kept = twice_;
    for (std::size_t m = members.size(); m-- > collected;) {
      bool is_needed = false;
      for (std::size_t k = next_; k < open_->size(); ++k)
        is_needed = is_needed || ((*open_)[k].operand == members[m] && is_like_next((*open_)[k]));
      for (std::size_t other = collected; other < kept.size(); ++other)
        for (const int o : s_.maker(kept[other]).operands) is_needed = is_needed || o == members[m];
      if (is_needed) kept.push_back(members[m]);
      else s_.visited_[members[m]] = 0;
    }
    std::reverse(kept.begin() + static_cast<std::ptrdiff_t>(collected), kept.end());
    members = kept;
  }
  /// Returns the reductions that a loop computes: the next one, if the loop computes its operand, and similar ones
  /// whose operands the loop computes or reads. If the loop also stores values, it may overwrite its operands, so it
  /// must compute each element once and without gaps. Then the result is empty if the reductions are over several runs
  /// of dims or the loop has padding.
  constexpr vec<waiting_reduction> reductions_of(const loop_group& group, const vec<int>& members, int v, int stamp) {
    vec<waiting_reduction> reductions;
    const auto is_computed = [&](int m) { return s_.visited_[m] == stamp && !s_.waits(m); };
    if (reduced_ < 0 || !reduces_by_blocks(reduced_) || group.ops.size() + loop_group::most_of_one > loop_group::most_registers ||
        !is_computed(reduced_)) {
      twice_.clear();
      return reductions;
    }
    for (std::size_t k = next_; k < open_->size() && reductions.size() < most_loop_reductions; ++k) {
      const auto& f = (*open_)[k];
      if (!s_.waits(f.result)) continue;
      const bool is_made = is_computed(f.operand);
      if ((!is_made && s_.waits(f.operand)) || !is_like_next(f)) continue;
      if (!is_made && !is_read_by(members, f.operand)) continue;
      reductions.push_back(f);
      if (is_made) --s_.uses_[f.operand];
    }
    if (reductions.empty()) twice_.clear();
    bool stores = false;
    for (const int m : members)
      stores = stores || (s_.uses_[m] != 0 && !is_computed_again(m) &&
                          (!is_left_waiting(m, v, reductions) || is_computed(s_.maker(m).operands[0])));
    const auto& operand = s_.program_.value(reduced_);
    if (stores && (padded_dims(s_.out.mesh, operand.global, operand.layout) != 0 ||
                   !plan_reduction(reduction_spec{operand.local, reduced_dims_, monoid::add}).is_simple)) {
      for (const auto& f : reductions)
        if (is_computed(f.operand)) ++s_.uses_[f.operand];
      reductions.clear();
      twice_.clear();
    }
    return reductions;
  }
  [[nodiscard]] constexpr bool is_computed_again(int v) const { return v == reduced_ && !twice_.empty(); }
  /// Returns true if a waiting reduction has the dims of the next reduction, and elements of the same width.
  [[nodiscard]] constexpr bool is_like_next(const waiting_reduction& f) const {
    const auto &own = s_.program_.value(f.operand), &next = s_.program_.value(reduced_);
    return s_.waits(f.result) && f.dims == reduced_dims_ && own.local == next.local &&
           bytes_of(computed_as(own.type)) == bytes_of(computed_as(next.type));
  }
  /// Returns true if a member of the loop reads `v` from memory element by element. `v` must have the shape and the
  /// layout of that member.
  [[nodiscard]] constexpr bool is_read_by(const vec<int>& members, int v) const {
    if (s_.waits(v) || s_.waits(s_.base[v]) || s_.offsets.read_of(v) != nullptr || !reduces_by_blocks(v)) return false;
    for (const int m : members) {
      const auto& made = s_.program_.value(m);
      const auto& from = s_.program_.value(v);
      if (!(made.local == from.local) || !(made.global == from.global) || made.layout != from.layout) continue;
      for (const int o : s_.maker(m).operands)
        if (o == v) return true;
    }
    return false;
  }
  /// Returns an operand that one loop can compute and reduce together with the operand of reduction `first`, which is
  /// in memory. Candidates are the operands of the next waiting reductions; the candidate must be computed from that
  /// value. Returns -1 if no operand qualifies.
  [[nodiscard]] constexpr int computed_beside(std::size_t first) {
    constexpr std::size_t most_looked_at = 8;
    const auto& f = (*open_)[first];
    if (s_.waits(f.operand) || !reduces_by_blocks(f.operand)) return -1;
    for (std::size_t k = first + 1; k < open_->size() && k <= first + most_looked_at; ++k) {
      const auto& other = (*open_)[k];
      if (!s_.waits(other.operand) || s_.waits_virtual(other.operand) || !is_like_next(other)) continue;
      vec<int> members;
      collect(other.operand, members, ++s_.stamp_);
      if (is_read_by(members, f.operand) && needs_no_reduction(other.operand)) return other.operand;
    }
    return -1;
  }
  /// Returns true if a waiting value can be computed before all waiting reductions. Returns false if the search takes
  /// too long.
  [[nodiscard]] constexpr bool needs_no_reduction(int v) {
    constexpr std::size_t most_looked_at = 256;
    const int stamp = ++s_.stamp_;
    vec<int> open(1, v);
    for (std::size_t k = 0; k < open.size(); ++k)
      for (const int operand : s_.maker(open[k]).operands) {
        const int o = s_.base[operand];
        if (!s_.waits(o) || s_.visited_[o] == stamp) continue;
        if (!s_.is_lazy(s_.maker(o)) || open.size() == most_looked_at) return false;
        s_.visited_[o] = stamp;
        open.push_back(o);
      }
    return true;
  }

  step_state& s_;
  widening wide_;
  vec<visit> path_;                               // see need()
  const vec<waiting_reduction>* open_ = nullptr;  // the reductions that are being computed
  std::size_t next_ = 0;                          // index in *open_; all earlier ones are computed
  int reduced_ = -1;                              // the operand of the next reduction
  dim_mask reduced_dims_ = 0;
  vec<int> twice_;  // operators that the last loop computed and did not store, although the result has other users
};

}  // namespace gspmd::detail
