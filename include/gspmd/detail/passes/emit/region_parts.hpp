// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/use_choice.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Loops and conditionals.
///
/// A carried value has one sharding, that of its carry node: it is brought to it before the loop and at the end of the body.
/// What a body needs of a value from outside is made before the loop; a conditional makes it where it is needed, and what
/// was made in a body is not there after it.
class region_parts : public use_choice {
 public:
  using use_choice::use_choice;

 protected:
  /// All results of a loop or conditional are computed if any of them is needed.
  constexpr void share_need(int last, vec<std::uint8_t>& needed) const {
    const opcode op = at(last).op;
    const int start = op == opcode::loop_result ? at(at(last).operands[0]).region : at(last).operands[0];
    if (is_result_of(last + 1, op, start)) return;
    bool any = false;
    for (int i = last; is_result_of(i, op, start); --i) any = any || needed[static_cast<std::size_t>(i)] != 0;
    for (int i = last; any && is_result_of(i, op, start); --i) needed[static_cast<std::size_t>(i)] = 1;
  }

  /// A sum that a loop only adds to, from 0 on, stays partial with what it adds: one reduction after the loop does.
  constexpr use_plan choose_with_sums(int i, const node& n, const op_rule& rule) {
    const int k = open_.empty() ? -1 : summing_operand(i, n);
    if (k < 0) return choose(i, n, rule);
    const int carried = forms_[static_cast<std::size_t>(n.operands[k])].front();
    auto& layout = program.values[static_cast<std::size_t>(carried)].layout;
    layout.partial = program.value(forms_of(n.operands[1 - k]).back()).layout.partial;
    layout.kind = monoid::add;
    const use_plan plan = choose(i, n, rule);
    if (same_layout(plan.wanted[k], layout) && same_layout(plan.result, layout)) return plan;
    layout.partial = 0;
    return choose(i, n, rule);
  }
  /// The operand that is such a sum; -1: none is.
  [[nodiscard]] constexpr int summing_operand(int i, const node& n) const {
    const auto readers = [this](int v) { return readers_[static_cast<std::size_t>(v)].size(); };
    if (n.operands.count != 2 || readers(i) != 1) return -1;
    const int reader = readers_[static_cast<std::size_t>(i)][0];
    for (int k = 0; k < 2; ++k) {
      if (facts_of(n.op).partial(n, k, monoid::add) != partial_rule::all) continue;
      const int carry = n.operands[k];
      const int added = n.operands[1 - k];
      if (at(carry).op != opcode::carry || at(carry).region != open_.back() || readers(carry) != 2 || readers(added) != 1)
        continue;
      if (at(reader).op != opcode::loop_result || at(reader).operands[0] != carry || at(reader).operands[1] != i) continue;
      if (!is_zero(at(at(carry).operands[0]))) continue;
      const auto& forms = forms_of(added);
      bool is_partial = !forms.empty();
      for (const int v : forms) is_partial = is_partial && program.value(v).layout.partial != 0;
      if (!is_partial) continue;
      const sharding& from = program.value(forms.back()).layout;
      const sharding& sum = program.value(forms_[static_cast<std::size_t>(carry)].front()).layout;
      if (from.kind == monoid::add && from.splits == sum.splits) return k;
    }
    return -1;
  }

  [[nodiscard]] constexpr sharding whole_layout(int i) const {
    sharding s = completed_of(i);
    s.partial = 0;
    return s;
  }
  constexpr void copy_to(int result, int from, int user) {
    const sharding layout = program.value(result).layout;  // a copy: values are added
    add_region_op(local_kind::copy, user, form_of(from, layout, user), result);
  }

  constexpr void emit_region(int i) {
    const node& n = at(i);
    if (n.op == opcode::loop) {
      for (int k = i + 1; at(k).op == opcode::carry && at(k).region == i; ++k) {
        const int carried = add_value(k, whole_layout(k));
        copy_to(carried, at(k).operands[0], k);
        name_form(k, carried);
      }
      const int counter = add_form(i, {});
      open_body(i, -1, counter);
    } else if (n.op == opcode::branch) {
      open_body(i, form_of(n.operands[0], {}, i), -1);
    } else if (n.op == opcode::otherwise) {
      int first = i + 1;
      while (!is_result_of(first, opcode::cond_result, i)) ++first;
      for (int k = first; is_result_of(k, opcode::cond_result, i); ++k) {
        given_.push_back(add_value(k, whole_layout(k)));
        copy_to(given_.back(), at(k).operands[1], k);
      }
      close_body();
      open_body(i, -1, -1);
    } else if (n.op == opcode::loop_result && !open_.empty() && is_result_of(i, opcode::loop_result, open_.back())) {
      const int start = open_.back();
      vec<int> carried;
      for (int k = i; is_result_of(k, opcode::loop_result, start); ++k) {
        carried.push_back(forms_[static_cast<std::size_t>(at(k).operands[0])].front());
        const sharding layout = program.value(carried.back()).layout;  // a copy: values are added
        static_cast<void>(form_of(at(k).operands[1], layout, k));
      }
      for (int k = i; is_result_of(k, opcode::loop_result, start);
           ++k)  // nothing between the copies: the scheduler sees them as one
        copy_to(carried[static_cast<std::size_t>(k - i)], at(k).operands[1], k);
      add_region_op(local_kind::control, i, -1, -1);
      close_body();
      for (int k = i; is_result_of(k, opcode::loop_result, start); ++k) name_form(k, carried[static_cast<std::size_t>(k - i)]);
    } else if (n.op == opcode::cond_result && !open_.empty() && n.operands[0] == open_.back()) {
      const int start = open_.back();
      std::size_t first = given_.size();
      for (int k = i; is_result_of(k, opcode::cond_result, start); ++k) --first;
      for (int k = i; is_result_of(k, opcode::cond_result, start); ++k)
        copy_to(given_[first + static_cast<std::size_t>(k - i)], at(k).operands[2], k);
      add_region_op(local_kind::control, i, -1, -1);
      close_body();
      for (int k = i; is_result_of(k, opcode::cond_result, start); ++k)
        name_form(k, given_[first + static_cast<std::size_t>(k - i)]);
      given_.resize(first);
    }
  }

  vec<int> given_;  // what the open conditionals give
};

}  // namespace gspmd::detail
