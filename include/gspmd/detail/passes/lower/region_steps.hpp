// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/lower/fuse_loops.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The steps of loops and conditionals: where bodies begin and end, and the copies between their values.
class region_steps : public fuse_loops {
 protected:
  using fuse_loops::fuse_loops;

  /// Steps of a body run never, once or many times: what a body reads of values that wait outside is computed before it.
  constexpr void emit_control(int i, const instruction& op) {
    const opcode what = node_of(op).op;
    const int here = static_cast<int>(out.steps.size());
    if (what == opcode::loop || what == opcode::branch) {
      if (what == opcode::branch) need(op.operands[0]);
      settle_before(i);
      open_.push_back(static_cast<int>(out.steps.size()));
      auto& s = what == opcode::loop ? add_step(action::loop_begin, op, 0, {}, {op.result})
                                     : add_step(action::branch, op, 0, {op.operands[0]}, {});
      if (what == opcode::loop) {
        s.trips = node_of(op).integer;
        times_ = saturating_multiply(times_, s.trips);
      }
      return;
    }
    auto& begin = out.steps[open_.back()];
    begin.target = here;
    if (what == opcode::otherwise) {
      open_.back() = here;
      add_step(action::otherwise, op, 0, {}, {});
    } else {
      if (what == opcode::loop_result) times_ = begin.times;
      const int target = open_.back();
      open_.pop_back();
      add_step(what == opcode::loop_result ? action::loop_end : action::join, op, 0, {}, {}).target = target;
    }
  }

  constexpr void settle_before(int start) {
    int depth = 0;
    for (std::size_t i = static_cast<std::size_t>(start); i < program_.ops.size(); ++i) {
      const instruction op = program_.ops[i];
      if (op.what == instruction_kind::control) {
        const opcode what = node_of(op).op;
        if (what == opcode::loop || what == opcode::branch) ++depth;
        if (is_region_result(what) && --depth == 0) return;
      }
      for (const int o : op.operands) {
        if (maker_[o] > start) continue;  // in the body
        if (is_lazy(op) && waits_virtual(o)) need_sources(o);
        else need(o);
      }
    }
  }
  /// A loop of the body may read through a broadcast, but not through it what would be computed there first.
  constexpr void need_sources(int v) {
    vec<int> list(1, v);
    while (!list.empty()) {
      const instruction op = maker(list.back());
      list.pop_back();
      for (const int o : op.operands) {
        if (waits_virtual(o)) list.push_back(o);
        else need(o);
      }
    }
  }

  /// Copies of several values at the end of a loop's body happen as if at once: {a, b} = {b, a + b}.
  constexpr void emit_copy(int i, const instruction& op) {
    need(op.operands[0]);
    if (node_of(op).op == opcode::carry) {  // what it begins as has a place of its own: memory_planner
      const local_value carried = program_.value(op.result);
      const int first = add_value(carried);
      base[first] = op.result;
      step_[op.result] = static_cast<int>(out.steps.size());
      add_step(action::copy, op, 0, {op.operands[0]}, {first});
      return;
    }
    if (node_of(op).op != opcode::loop_result) {
      auto& s = add_step(action::copy, op, 0, {op.operands[0]}, {op.result});
      if (node_of(op).op == opcode::cond_result) s.target = open_.back();
      return;
    }
    const auto is_back = [&](int k) {
      return k >= 0 && k < static_cast<int>(program_.ops.size()) && program_.ops[k].what == instruction_kind::copy &&
             node_of(program_.ops[k]).op == opcode::loop_result;
    };
    if (is_back(i - 1)) return;  // done with the first
    int end = i;
    while (is_back(end)) need(program_.ops[end++].operands[0]);
    vec<int> from;
    for (int k = i; k < end; ++k) {
      int v = program_.ops[k].operands[0];
      for (int j = i; j < end; ++j)
        if (j != k && base[v] == base[program_.ops[j].result]) {
          const local_value copy = program_.value(program_.ops[k].result);
          const int saved = add_value(copy);
          add_step(action::copy, program_.ops[k], 0, {v}, {saved});
          v = saved;
          break;
        }
      from.push_back(v);
    }
    for (int k = i; k < end; ++k) {
      const instruction back = program_.ops[k];
      if (base[from[k - i]] != base[back.result])
        add_step(action::copy, back, 0, {from[k - i]}, {back.result}).target = open_.back();
    }
  }

  vec<int> open_;  // the steps that opened the bodies around what is emitted now
};

}  // namespace gspmd::detail
