// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/lower/loop_fuser.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Adds the steps of loops and conditionals: the start and end of bodies, and the copies between their values.
class region_steps {
 public:
  constexpr region_steps(step_state& state, loop_fuser& loops) : s_(state), loops_(loops) {}

  /// Adds the step at the start or end of a body. The steps of a body run never, once or many times. So waiting values
  /// from outside that a body reads are computed before the body.
  constexpr void emit_control(int i, const instruction& op) {
    loops_.reduce_all();
    const opcode what = s_.node_of(op).op.code;
    const int here = static_cast<int>(s_.out.steps.size());
    if (what == opcode::loop || what == opcode::branch) {
      if (what == opcode::branch) loops_.need(op.operands[0]);
      settle_before(i);
      s_.open_bodies_.push_back(static_cast<int>(s_.out.steps.size()));
      auto& s = what == opcode::loop ? s_.add_step(id_of<kernels::loop_begin>, op, 0, {}, {op.result})
                                     : s_.add_step(id_of<kernels::branch>, op, 0, {op.operands[0]}, {});
      if (what == opcode::loop) {
        s.trips = is_while(s_.node_of(op)) ? unknown_trips : s_.node_of(op).integer;
        s_.times_ = saturating_multiply(s_.times_, s_.node_of(op).integer);
      }
      return;
    }
    auto& begin = s_.out.steps[s_.open_bodies_.back()];
    begin.target = here;
    if (what == opcode::otherwise) {
      s_.open_bodies_.back() = here;
      s_.add_step(id_of<kernels::otherwise>, op, 0, {}, {});
    } else {
      if (what == opcode::loop_result) s_.times_ = begin.times;
      const int target = s_.open_bodies_.back();
      s_.open_bodies_.pop_back();
      s_.add_step(what == opcode::loop_result ? id_of<kernels::loop_end> : id_of<kernels::join>, op, 0, {}, {}).target = target;
    }
  }

  /// Adds the copies of carried values. Several copies at the end of a loop's body take effect together: {a, b} = {b,
  /// a + b}.
  constexpr void emit_copy(int i, const instruction& op) {
    loops_.need(op.operands[0]);
    if (s_.node_of(op).op == opcode::carry) {  // a value of its own, as memory_planner may place it separately
      const local_value carried = s_.program_.value(op.result);
      const int first = s_.add_value(carried);
      s_.base[first] = op.result;
      s_.step_[op.result] = static_cast<int>(s_.out.steps.size());
      s_.add_step(id_of<kernels::copy>, op, 0, {op.operands[0]}, {first});
      return;
    }
    if (s_.node_of(op).op != opcode::loop_result) {
      auto& s = s_.add_step(id_of<kernels::copy>, op, 0, {op.operands[0]}, {op.result});
      if (s_.node_of(op).op == opcode::cond_result) s.target = s_.open_bodies_.back();
      return;
    }
    const auto is_back = [&](int k) {
      return k >= 0 && k < static_cast<int>(s_.program_.ops.size()) && s_.program_.ops[k].what == instruction_kind::copy &&
             s_.node_of(s_.program_.ops[k]).op == opcode::loop_result;
    };
    if (is_back(i - 1)) return;  // done with the first copy
    int end = i;
    while (is_back(end)) loops_.need(s_.program_.ops[end++].operands[0]);
    vec<int> from;
    for (int k = i; k < end; ++k) {
      int v = s_.program_.ops[k].operands[0];
      for (int j = i; j < end; ++j)
        if (j != k && s_.base[v] == s_.base[s_.program_.ops[j].result]) {
          const local_value copy = s_.program_.value(s_.program_.ops[k].result);
          const int saved = s_.add_value(copy);
          s_.add_step(id_of<kernels::copy>, s_.program_.ops[k], 0, {v}, {saved});
          v = saved;
          break;
        }
      from.push_back(v);
    }
    for (int k = i; k < end; ++k) {
      const instruction back = s_.program_.ops[k];
      if (s_.base[from[k - i]] != s_.base[back.result])
        s_.add_step(id_of<kernels::copy>, back, 0, {from[k - i]}, {back.result}).target = s_.open_bodies_.back();
    }
  }

 private:
  constexpr void settle_before(int start) {
    int depth = 0;
    for (std::size_t i = static_cast<std::size_t>(start); i < s_.program_.ops.size(); ++i) {
      const instruction op = s_.program_.ops[i];
      if (op.what == instruction_kind::control) {
        const opcode what = s_.node_of(op).op.code;
        if (what == opcode::loop || what == opcode::branch) ++depth;
        if (is_region_result(what) && --depth == 0) return;
      }
      for (const int o : op.operands) {
        if (s_.maker_[o] > start) continue;  // computed in the body
        if (s_.is_lazy(op) && s_.waits_virtual(o)) need_sources(o);
        else loops_.need(o);
      }
    }
  }
  /// Computes the sources of a waiting broadcast. A loop in the body can read through a broadcast, but a waiting
  /// source would be computed in the body.
  constexpr void need_sources(int v) {
    vec<int> list(1, v);
    while (!list.empty()) {
      const instruction op = s_.maker(list.back());
      list.pop_back();
      for (const int o : op.operands) {
        if (s_.waits_virtual(o)) list.push_back(o);
        else loops_.need(o);
      }
    }
  }

  step_state& s_;
  loop_fuser& loops_;
};

}  // namespace gspmd::detail
