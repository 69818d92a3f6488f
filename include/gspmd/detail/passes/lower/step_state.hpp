// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/contraction_planner.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/passes/emit/lazy_ops.hpp"
#include "gspmd/detail/passes/lower/offset_reads.hpp"
#include "gspmd/detail/passes/lower/tile_reads.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// A reduction over `dims` that waits.
struct waiting_reduction {
  instruction op;
  int operand = 0, result = 0;
  dim_mask dims = 0;
  monoid kind = monoid::add;
};

/// The lengths of the lists of a step_state, by their names.
struct step_lengths {
  plan_lengths out;
  struct {
    std::size_t values = 0;
  } program_;
  struct {
    std::size_t margins = 0, first_ = 0, reads_ = 0, by_value_ = 0;
  } offsets;
  struct {
    std::size_t tiles = 0, reads_ = 0;
  } tiles;
  std::size_t base = 0, maker_ = 0, uses_ = 0, waiting_ = 0, readers_from_ = 0, readers_ = 0, is_joined_ = 0, step_ = 0;
  std::size_t contractions_ = 0, reductions_ = 0, open_bodies_ = 0;
};

/// The values of a local program while it becomes steps, and the plan's tables that the steps fill. loop_fuser,
/// lowering, region_steps and scheduler share it.
///
/// A constant between two evaluations lacks the operators, which `read` restores. It also lacks data that is used
/// within one operator only.
struct step_state {
  /// Returns true if all users of a value are loops, or values w for which fits(w) is true.
  // Defined before its first use, for Clang: it instantiates a member template too late for constant evaluation if the
  // body follows later.
  template <class Fits>
  [[nodiscard]] constexpr bool only_read_by(int v, Fits fits) const {
    const int first = readers_from_[v], last = readers_from_[v + 1];
    bool only = first < last && uses_[v] == last - first;
    for (int r = first; r < last && only; ++r) {
      const int w = readers_[r];
      only = w >= 0 && ((is_lazy(maker(w)) && !is_virtual(maker(w))) || fits(w));
    }
    return only;
  }

  constexpr step_state() = default;
  constexpr step_state(const graph& g, const mesh_shape& mesh, const plan_request& request, local_program p)
      : graph_(&g), program_(std::move(p)) {
    out.mesh = mesh;
    out.saving = request.saving;
    out.is_checked = request.is_checked;
    const auto count = program_.values.size();
    base.resize(count, 0);
    maker_.resize(count, -1);
    uses_.resize(count, 0);
    waiting_.resize(count, 0);
    visited_.resize(count, 0);
    is_joined_.resize(count, 0);
    step_.resize(count, -1);
    register_.resize(count, -1);
    slot_.resize(count, -1);
    for (std::size_t v = 0; v < count; ++v) base[v] = static_cast<int>(v);
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (program_.ops[i].result >= 0) maker_[program_.ops[i].result] = static_cast<int>(i);
      for (const int v : program_.ops[i].further_results) maker_[v] = static_cast<int>(i);
      for (const int o : program_.ops[i].operands) ++uses_[o];
    }
    list_readers();
    reserve_tables();
    for (const int o : program_.outputs) ++uses_[o];
    given_ = request.given;
    offsets.find(g, mesh, program_, given_, [this](int v, auto fits) { return only_read_by(v, fits); });
    tiles.find(g, mesh, program_);
  }

  static constexpr auto lists(auto& s, auto f) {
    return lists_of_plan(s.out, [&](auto&... list) {
      return f(list..., s.base, s.program_.values, s.maker_, s.uses_, s.waiting_, s.readers_from_, s.readers_, s.is_joined_,
               s.step_, s.contractions_, s.reductions_, s.open_bodies_, s.offsets.margins, s.offsets.first_, s.offsets.reads_,
               s.offsets.by_value_, s.tiles.tiles, s.tiles.reads_);
    });
  }
  struct rest_members {
    struct {
      mesh_shape mesh;
      mistake broken = mistake::none;
    } out;
    std::int64_t times_ = 1;
    std::size_t next_ = 0;
    bool is_done_ = false;
  };
  static constexpr auto rest(auto& s, auto f) { return f(s.out.mesh, s.out.broken, s.times_, s.next_, s.is_done_); }
  /// Restores the operators, inputs and outputs of the program that the saved values belong to. `graph_` must be set
  /// before.
  constexpr void read(local_program p) {
    program_.ops = std::move(p.ops);
    program_.inputs = std::move(p.inputs);
    program_.outputs = std::move(p.outputs);
    const auto count = program_.values.size();
    visited_.resize(count, 0);
    register_.resize(count, -1);
    slot_.resize(count, -1);
    reserve_tables();
  }

  plan out;
  vec<int> base;  // by value: the value whose memory it uses
  offset_reads offsets;
  tile_reads tiles;

  [[nodiscard]] constexpr const node& node_of(const instruction& op) const { return graph_->nodes[op.node]; }
  [[nodiscard]] constexpr bool is_virtual(const instruction& op) const { return detail::is_virtual(*graph_, op); }
  [[nodiscard]] constexpr bool is_lazy(const instruction& op) const { return detail::is_lazy(*graph_, op); }
  [[nodiscard]] constexpr const instruction& maker(int v) const { return program_.ops[maker_[v]]; }
  [[nodiscard]] constexpr bool waits(int v) const { return waiting_[v] != 0; }
  [[nodiscard]] constexpr bool waits_virtual(int v) const { return waits(v) && is_virtual(maker(v)); }

  /// Returns true if `v` is a bf16 or f16 value converted to a wider float, and only loops and reductions read `v`.
  /// Each loop that reads `v` converts the 16-bit elements, so that `v` needs no memory: the 16-bit value takes half
  /// the bytes, and a conversion is one instruction.
  [[nodiscard]] constexpr bool is_widened_in_loops(int v) const {
    if (maker_[v] < 0 || !is_lazy(maker(v)) || maker(v).operands.count != 1) return false;
    if (const node& n = node_of(maker(v)); !facts_of(n.op).is_made_again(n)) return false;
    if (!is_widening(program_.value(maker(v).operands[0]).type, program_.value(v).type) || is_virtual(maker(v))) return false;
    for (int r = readers_from_[v]; r < readers_from_[v + 1]; ++r) {
      const int w = readers_[r];
      if (w < 0 || maker(w).what != instruction_kind::compute || is_virtual(maker(w))) return false;
      const bool reduces = maker(w).operands.count == 1 && elements(program_.value(w).local) < elements(program_.value(v).local);
      if (!is_lazy(maker(w)) && !reduces) return false;
    }
    for (const int o : program_.outputs)
      if (o == v) return false;
    return true;
  }

  /// Returns true if an all_to_all with a message of its own computes `v`, and no control instruction is between the
  /// makers of `v` and `beside`.
  [[nodiscard]] constexpr bool is_brought(int v, int beside) const {
    if (v < 0 || maker_[v] < 0) return false;
    const auto& ops = program_.ops;
    const auto at = static_cast<std::size_t>(maker_[v]), other = static_cast<std::size_t>(maker_[beside]);
    if (ops[at].what != instruction_kind::move || ops[at].collective != collective_kind::all_to_all || ops[at].joined ||
        (at + 1 < ops.size() && ops[at + 1].joined))
      return false;
    for (auto i = at < other ? at : other; i < (at < other ? other : at); ++i)
      if (ops[i].what == instruction_kind::control) return false;
    return true;
  }

  step_state(const step_state&) = delete;
  step_state& operator=(const step_state&) = delete;
  constexpr step_state(step_state&&) = default;
  constexpr step_state& operator=(step_state&&) = default;
  constexpr ~step_state() = default;

  constexpr void list_readers() {
    int total = 0;
    readers_from_.resize(uses_.size() + 1, 0);
    for (std::size_t v = 0; v < uses_.size(); ++v) {
      readers_from_[v] = total;
      total += uses_[v];
    }
    readers_from_[uses_.size()] = total;
    readers_.resize(static_cast<std::size_t>(total), 0);
    vec<int> next = readers_from_;
    for (const auto& op : program_.ops)
      for (const int o : op.operands) readers_[next[o]++] = op.result;
  }

  /// Returns the number of the input or output, counted from 1, whose memory `v` uses, if its strides are the
  /// caller's. Returns 0 otherwise, and if the loop is not over its shard element by element.
  [[nodiscard]] constexpr int given_of(int v, const extents& loop) const {
    const auto k = given_leaf(program_, given_, base[v]);
    return k >= 0 && program_.value(base[v]).local == loop ? k + 1 : 0;
  }

  /// Reserves memory for large tables. Growing them step by step would cost more than all other work.
  constexpr void reserve_tables() {
    std::size_t contractions = 0;
    std::size_t lazy = 0;
    for (const auto& op : program_.ops) {
      if (op.what != instruction_kind::compute) continue;
      if (is_lazy(op)) ++lazy;
      else if (op.operands.count == 2) ++contractions;
    }
    out.values.reserve(program_.values.size() + program_.outputs.size());
    const auto count = program_.ops.size() + program_.outputs.size();
    out.steps.reserve(count);
    out.slots.reserve(3 * count);
    out.bounds.reserve(count);
    table_of<contraction_plan>(out).reserve(contractions < entries_looked_at ? contractions : entries_looked_at);
    table_of<scalar_op>(out).reserve(2 * lazy);
  }

  constexpr table_range add_slots(const vec<int>& values) {
    const table_range range{static_cast<int>(out.slots.size()), static_cast<int>(values.size())};
    for (const int v : values) out.slots.push_back(v);
    return range;
  }

  constexpr plan_step& add_step(kernel_id kernel, const instruction& op, int spec, const vec<int>& operands,
                                const vec<int>& results) {
    plan_step s;
    s.kernel = kernel;
    s.node = op.node;
    s.spec = spec;
    s.type = results.empty() ? dtype::pred : program_.value(results[0]).type;
    s.operands = add_slots(operands);
    s.results = add_slots(results);
    for (const int v : results) step_[v] = static_cast<int>(out.steps.size());
    s.bounds.begin = static_cast<int>(out.bounds.size());
    s.forced = op.forced;
    s.times = times_;
    out.steps.push_back(s);
    return out.steps.back();
  }

  /// Records how much of a dim of a shard is data, which may differ between devices.
  constexpr void add_bound(plan_step& s, int index, int value, int dim) {
    out.bounds.push_back(bound{static_cast<std::int8_t>(index), value, static_cast<std::int8_t>(dim)});
    ++s.bounds.count;
  }

  /// planned() returns the number of a contraction in the plan. contraction_of() returns the contraction of a step;
  /// null if it is unknown.
  constexpr int planned(const contraction& c) {
    const int spec = entry_of(contractions_, c);
    auto& plans = table_of<contraction_plan>(out);
    if (spec == static_cast<int>(plans.size())) plans.push_back(plan_contraction(c));
    return spec;
  }
  [[nodiscard]] constexpr const contraction* contraction_of(const plan_step& s) const {
    return s.spec < static_cast<int>(contractions_.size()) ? &contractions_[s.spec] : nullptr;
  }

  constexpr int add_value(const local_value& v) {
    program_.values.push_back(v);
    base.push_back(static_cast<int>(base.size()));
    maker_.push_back(-1);
    uses_.push_back(1);
    visited_.push_back(0);
    waiting_.push_back(0);
    step_.push_back(-1);
    register_.push_back(-1);
    slot_.push_back(-1);
    return static_cast<int>(program_.values.size()) - 1;
  }

  const graph* graph_ = nullptr;
  span<const given_layers> given_;
  local_program program_;
  vec<int> maker_;    // by value: the operator that computes it; -1 for inputs
  vec<int> uses_;     // by value: uses by outputs and by operators that are not in a group yet
  vec<int> visited_;  // by value: the last walk that visited it
  int stamp_ = 0;
  vec<std::uint8_t> waiting_;      // by value: 1 if its operator is lazy and not computed yet
  vec<int> readers_from_;          // by value: the index of its first user in readers_
  vec<int> readers_;               // results of the operators that read a value, in order
  vec<std::uint8_t> is_joined_;    // by value of the local program: a joined all_reduce computes it
  vec<int> step_;                  // by value: the step that computes it; -1: none yet
  std::int64_t times_ = 1;         // how often the steps of the current body run
  vec<contraction> contractions_;  // the contractions of the plan's contraction_plans
  vec<int> register_;              // by value: its register in the loop that computes it
  vec<int> slot_;                  // by memory: its input of the current loop; -1: none
  vec<waiting_reduction> reductions_;
  vec<int> open_bodies_;  // the steps that opened the bodies around the current instruction
  std::size_t next_ = 0;  // the next operator
  bool is_done_ = false;  // all operators are processed
};

}  // namespace gspmd::detail
