// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/request/value_uses.hpp"
#include "gspmd/detail/passes/typed/program_typer.hpp"

namespace gspmd::detail {

/// Types loops and conditionals: the bodies determine the types of carried values and results.
class region_typer {
 public:
  explicit constexpr region_typer(program_typer& t) : t_(t) {}

  constexpr void visit(int i) {
    const node& n = t_.at(i);
    if (n.op == opcode::loop) {
      t_.loops.push_back({i, t_.mistakes.size(), t_.steps.size()});
      t_.type(i) = value_type::all_constant(t_.mesh());
    } else if (n.op == opcode::carry) {
      for (const auto& c : t_.carried)
        if (c.carry == i) t_.type(i) = c.is;
      if (!t_.type(i).is_known) t_.type(i) = t_.type(n.operands[0]);
    } else if (n.op == opcode::loop_result) {
      end_loop(i);
    } else if (n.op == opcode::cond_result) {
      value_type joined = t_.type(n.operands[1]);
      if (join(i, 1, joined, t_.type(n.operands[2]), is_zero(t_.at(n.operands[1])), mode_mistake::branch_mismatch,
               is_zero(t_.at(n.operands[2]))) >= 0 &&
          chosen_by(i, t_.at(n.operands[0]).operands[0], joined))
        t_.type(i) = joined;
    } else {
      t_.type(i) = value_type::all_constant(t_.mesh());
    }
  }

 private:
  /// Types a result that a varying predicate selects: it varies. Refuses invariant and partial results, which would
  /// differ between devices.
  constexpr bool chosen_by(int i, int branch, value_type& joined) {
    const axis_mask axes = t_.varying_predicate(branch);
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      if ((axes & axis_bit(a)) == 0) continue;
      const auto is = joined.on(a).is;
      if (is == state::invariant || is == state::partial) {
        t_.refuse(is == state::partial ? mode_mistake::partial_varying_mix : mode_mistake::state_conflict, i, 1, a,
                  text("the result is ")
                      << long_text(joined.on(a)) << " and the predicate varies over `" << axes_text(t_.on_mesh, axis_bit(a))
                      << "`: devices would differ in a value that is one to all; make it varying or a replica first");
        return false;
      }
      joined.hold(a, {state::varying});
    }
    return true;
  }
  /// Gives a carried value the type that the body gives it. If that differs from its initial type, the body is typed
  /// again. After all carried values are known, the body is typed once more if zeros were assumed to become partial
  /// and did not.
  constexpr void end_loop(int i) {
    const int carry = t_.at(i).operands[0], loop = t_.at(carry).region;
    value_type carried = t_.type(carry);
    const int more = join(i, 1, carried, t_.type(t_.at(i).operands[1]), t_.may_be_zeros(t_.at(carry).operands[0]),
                          mode_mistake::carry_mismatch);
    if (more < 0) return;
    t_.type(i) = carried;
    if (more > 0) keep(carry, carried, false);
    else if (is_result_of(t_.program, i + 1, opcode::loop_result, loop) || !settle_zeros(loop)) return;
    for (std::size_t k = t_.carried.size(); k-- > 0;)  // the loops in its body begin with other types now
      if (const int c = t_.carried[k].carry; c > loop && c < i && t_.at(c).region != loop)
        t_.carried.erase(t_.carried.begin() + static_cast<std::ptrdiff_t>(k));
    for (std::size_t k = t_.loops.size(); k-- > 0;) {
      if (t_.loops[k].loop != loop) continue;
      t_.mistakes.resize(t_.loops[k].mistakes);
      t_.steps.resize(t_.loops[k].steps);
      t_.loops.resize(k);
      break;
    }
    for (int k = loop; k <= i; ++k) t_.type(k).is_known = false;
    t_.next = loop - 1;
  }
  constexpr void keep(int carry, const value_type& is, bool is_settled) {
    for (auto& c : t_.carried)
      if (c.carry == carry) {
        c = {carry, is, is_settled};
        return;
      }
    t_.carried.push_back({carry, is, is_settled});
  }
  /// Settles the carried zeros that are still constant on some axis: they no longer count as zeros. Returns true if
  /// there are any.
  constexpr bool settle_zeros(int loop) {
    bool any = false;
    for (int c = loop + 1; t_.at(c).op == opcode::carry && t_.at(c).region == loop; ++c) {
      if (!t_.may_be_zeros(c) || !has_constant(t_.type(c))) continue;
      keep(c, value_type(t_.type(c)), true);
      any = true;
    }
    return any;
  }
  [[nodiscard]] static constexpr bool varies(const axis_state& s) { return s.is == state::varying || s.is == state::shard; }
  /// Returns true if a state becomes varying without a message, forward and backward.
  [[nodiscard]] static constexpr bool goes_in_varying(const axis_state& s) {
    return varies(s) || s.is == state::constant || s.is == state::replica;
  }
  [[nodiscard]] constexpr bool has_constant(const value_type& t) const { return t.constant != 0; }
  /// Returns the remedies that bring an initial value of a loop to the state that the body gives.
  [[nodiscard]] constexpr constant_vector<text> ways_to_begin(int carry, int a, const axis_state& is,
                                                              const axis_state& to) const {
    const node& n = t_.at(carry);
    remedy_list list(t_.on_mesh, a, t_.local_here, (n.local_axes & axis_bit(a)) != 0);
    const axis_state begun = t_.is_local(a) && varies(to) ? axis_state{state::varying} : to;
    for (int row = 0; row < transition_count; ++row) {
      const auto& t = transitions[row];
      if (t.from != is.is || t.to != begun.is || t.is_for_experts || t.by == transition_kind::permute) continue;
      const bool cuts_or_joins = t.from == state::shard || t.to == state::shard;  // these change a shape of the local view
      if (!t_.is_local(a) || !cuts_or_joins) list.add(carry - n.region - 1, row, is, begun, t_.held(n.operands[0]));
    }
    return list.texts();
  }
  /// Joins `other` into `known`. Constants may become any state, and zeros may also become partial. Returns 1 if
  /// `known` changes, 0 if it does not, and -1 after a mistake if both are incompatible. In the local view chunks
  /// count as varying, as in operands.
  ///
  ///   constant with varying: varying, 1     varying with constant: varying, 0     invariant with partial: -1
  constexpr int join(int i, int operand, value_type& known, const value_type& other, bool is_zeros, mode_mistake kind,
                     bool others_are_zeros = false) {
    int changed = 0;
    for (int a = 0; a < t_.mesh().axis_count(); ++a) {
      const auto is = known.on(a), to = other.on(a);
      if (t_.is_local(a) && t_.at(i).in_gradient) {  // partial values of one gradient
        const bool varies = is.is == state::varying, partial = is.is == state::partial;
        if ((varies && to.is == state::partial) || (partial && (to.is == state::varying || to.is == state::constant))) {
          changed = changed > 0 || varies ? 1 : 0;
          known.hold(a, {state::partial});
          continue;
        }
      }
      if (is == to || (to.is == state::constant && (is.is != state::partial || others_are_zeros))) continue;
      if (t_.is_local(a) && (varies(is) || varies(to)) && goes_in_varying(is) && goes_in_varying(to)) {
        changed = is.is == state::varying ? changed : 1;
        known.hold(a, {state::varying});
        continue;
      }
      if (is.is == state::constant && (to.is != state::partial || is_zeros)) {
        known.set(a, to);
        changed = 1;
        continue;
      }
      text what(kind == mode_mistake::carry_mismatch ? "the carried value is " : "the result is ");
      what << long_text(is) << " over `" << axes_text(t_.on_mesh, axis_bit(a)) << '`';
      what << (kind == mode_mistake::carry_mismatch ? " before an iteration and " : " in one branch and ") << long_text(to)
           << (kind == mode_mistake::carry_mismatch ? " after it" : " in the other one");
      constant_vector<text> ways;
      if (kind == mode_mistake::carry_mismatch) ways = ways_to_begin(t_.at(i).operands[0], a, is, to);
      if (ways.empty()) what << "; reshard one result";
      t_.refuse(kind, i, operand, a, what).remedies = ways;
      return -1;
    }
    if (changed == 0 && !(known.layout.splits == other.layout.splits) && known.layout.splits.count == other.layout.splits.count) {
      t_.refuse(kind, i, operand, -1,
                text("the value is ") << t_.words_of(known, t_.at(i).shape.count) << " and "
                                      << t_.words_of(other, t_.at(i).shape.count)
                                      << ": axes split a dim in another order; reshard one result");
      return -1;
    }
    const int rank = t_.at(i).shape.count;
    return known.change_parts([&](local_parts& parts) { return parts.keep_common(other.parts, rank); }) ? 1 : changed;
  }

  program_typer& t_;
};

}  // namespace gspmd::detail
