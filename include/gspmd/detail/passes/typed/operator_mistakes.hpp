// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/typed/axis_rule.hpp"
#include "gspmd/detail/passes/typed/joint_remedy.hpp"
#include "gspmd/detail/passes/typed/program_typer.hpp"

namespace gspmd::detail {

/// Returns the reason why operands are incompatible on an axis.
///
///   operand 1 is invariant over `x`, operand 0 is varying: the gradient of operand 1 would miss a sum over `x`
constexpr text why_not_met(const node& n, const user_names& names, const op_rule& rule, const operands_on_axis& in,
                           const text& axis, const axis_result& found) {
  const int k = found.operand;
  int other = k == 0 ? 1 : 0;  // an operand that it is incompatible with
  for (int o = in.count - 1; o >= 0; --o)
    if (o != k && in[o].is.is != state::constant && !(in[o].is == in[k].is)) other = o;
  text t = names.operand(k);
  t << " is " << long_text(in[k].is) << " over `" << axis << '`';
  const auto beside = [&] {
    if (other < in.count) t << ", " << names.operand(other) << " is " << long_text(in[other].is);
  };
  switch (found.broken) {
    case mode_mistake::state_conflict:
      for (int o = 0; o < in.count; ++o)
        if (in[o].is.is == state::varying || in[o].is.is == state::shard) other = o;
      beside();
      if (other < in.count && in[other].is.is == state::partial) return t << ": equal data would be counted once on every device";
      return t << ": the gradient of " << names.operand(k) << " would miss a sum over `" << axis << '`';
    case mode_mistake::partial_varying_mix:
      beside();
      return t << ": partial values and values of single devices cannot be combined";
    case mode_mistake::partial_nonlinear:
      return t << ", and " << name_of(n.op) << " of the partial values does not give the partial values of the result";
    case mode_mistake::partial_affine:
      if (in[k].is.is == state::partial)
        return t << ", and the number that the operator puts in would be counted on every device";
      for (int o = 0; o < in.count; ++o)
        if (in[o].is.is == state::partial) other = o;
      beside();
      return t << ": it would be counted once on every device";
    case mode_mistake::partial_product: return t << ", and so is another one: a product of sums is not the sum of the products";
    case mode_mistake::partial_denominator: return t << ": a quotient by a sum is not the sum of quotients";
    case mode_mistake::axis_used_twice: beside(); return t << ": the axis would split two dims of the result";
    case mode_mistake::op_on_whole_dim: return t << ", and the operator works on that dim as a whole";
    case mode_mistake::needs_communication: return t << ", and the result cannot keep that split: elements would move";
    default:
      beside();
      t << ": a dim that both have is split in only one operand";
      if (in[k].is.is == state::shard) t << ", or otherwise";
      return rule.uniform || found.broken != mode_mistake::ambiguous_contraction ? t : t << ", and it is summed";
  }
}

/// Searches the remedies for a mistake on an axis of the global view. It brings one of the user's values to another
/// state on the axis, and types the refused nodes again with that state.
class remedy_search {
 public:
  constexpr remedy_search(program_typer& t, int refused, int axis)
      : t_(t), refused_(refused), axis_(axis), names_(t.program, refused) {}

  /// Returns the remedies. In a call of several operators, these are the remedies that correct the whole call. If
  /// there are no such remedies, they are those that correct the refused operator. If no single value is a remedy,
  /// several values are changed.
  constexpr constant_vector<text> run(bool only_gathers = false) {
    const int ends[] = {names_.end(), refused_ + 1}, count = ends[1] < ends[0] ? 2 : 1;
    constant_vector<text> ways;
    for (int k = 0; k < count && ways.empty(); ++k) {
      end_ = ends[k];
      ways = found(only_gathers);
    }
    for (int k = 0; k < count && ways.empty() && !only_gathers; ++k) {
      end_ = ends[k];
      if (const text way = together(); !way.empty()) ways.push_back(way);
    }
    return ways;
  }

 private:
  constexpr constant_vector<text> found(bool only_gathers) {
    remedy_list list(t_.on_mesh, axis_, t_.local_here);
    for (int k = 0; k < names_.count(); ++k) {
      if (!is_first_of(k)) continue;
      const int x = names_.held(k);
      const axis_state is = t_.type(x).on(axis_);
      for (int row = 0; row < transition_count; ++row) {
        const auto& t = transitions[row];
        if (t.from != is.is || t.is_for_experts || t.to == state::varying || t.by == transition_kind::permute) continue;
        if (only_gathers && t.by != transition_kind::all_gather) continue;
        const int dims = t.to == state::shard ? t_.at(x).shape.count : 1;
        for (int d = 0; d < dims; ++d)
          if (const axis_state to = t.to == state::shard ? shard_of(d) : axis_state{t.to}; !(to == is) && is_way_out(x, to))
            list.add(k, row, is, to, t_.held(x));
      }
    }
    return list.texts();
  }
  /// Returns true if the user has the value, and no earlier operand is the same value.
  [[nodiscard]] constexpr bool is_first_of(int k) const {
    const int x = names_.held(k);
    for (int o = 0; o < k; ++o)
      if (names_.held(o) == x) return false;
    return x >= 0 && t_.type(x).is_known;
  }
  /// Makes values whole on the axis, as few as possible.
  constexpr text together() {
    for (const bool in_all_dims : {false, true})
      for (const state to : {state::invariant, state::replica})
        if (const text way = together(to, in_all_dims); !way.empty()) return way;
    return {};
  }
  constexpr text together(state to, bool in_all_dims) {
    constant_vector<written_change> all;
    for (int k = 0; k < names_.count(); ++k)
      if (is_first_of(k))
        if (const auto c = made_whole(t_, k, names_.held(k), axis_, to, in_all_dims); !c.words.empty()) all.push_back(c);
    if (all.empty() || !is_right_with(all)) return {};
    for (std::size_t k = all.size(); k-- > 0 && all.size() > 1;) {
      constant_vector<written_change> fewer;
      for (std::size_t j = 0; j < all.size(); ++j)
        if (j != k) fewer.push_back(all[j]);
      if (is_right_with(fewer)) all = fewer;
    }
    text words;
    std::int64_t sent = 0, sent_back = 0;
    for (const auto& c : all) {
      words << (words.empty() ? "" : " and ") << c.words;
      sent = saturating_add(sent, c.sent);
      sent_back = saturating_add(sent_back, c.sent_back);
    }
    return words << ": " << sent << " bytes forward, " << sent_back << " bytes backward";
  }
  constexpr bool is_way_out(int x, const axis_state& to) {
    value_type after = t_.type(x);
    if (cut_further(after.layout.splits, axis_bit(axis_)) >= 0)
      return false;  // the axes after it must leave the dim too: made_whole
    after.set(axis_, to);
    return is_right_with({{x, after, {}, 0, 0}});
  }
  constexpr bool is_right_with(constant_vector<written_change> changes) {
    constant_vector<value_type> types;
    for (int i = names_.begin(); i < end_; ++i) types.push_back(t_.type(i));
    const auto mistakes = t_.mistakes.size(), steps = t_.steps.size();
    const auto further = t_.further;
    const axis_mask local = t_.local_here;
    t_.is_trying = true;
    for (auto& c : changes) std::swap(t_.type(c.node), c.after);
    for (int i = names_.begin(); i < end_; ++i) t_.type_again(t_, i);
    bool is_right = true;
    for (auto k = mistakes; k < t_.mistakes.size(); ++k) {
      const typed_mistake& m = t_.mistakes[k];
      if (m.kind == mode_mistake::out_spec_mismatch) continue;
      is_right =
          is_right && m.axis >= 0 && m.axis != axis_ && (m.kind != mode_mistake::needs_communication || !m.remedies.empty());
    }
    t_.is_trying = false;
    for (auto& c : changes) std::swap(t_.type(c.node), c.after);
    for (int i = names_.begin(); i < end_; ++i) t_.type(i) = types[static_cast<std::size_t>(i - names_.begin())];
    t_.mistakes.resize(mistakes);
    t_.steps.resize(steps);
    t_.further = further;
    t_.local_here = local;
    return is_right;
  }

  program_typer& t_;
  int refused_, axis_, end_ = 0;  // end of the nodes that are typed again
  user_names names_;
};

constexpr void complain(program_typer& t, int i, const op_rule& rule, const axis_rule& along, const operands_on_axis& in, int a,
                        const axis_result& found) {
  const node& n = t.at(i);
  const user_names names(t.program, i);
  const int number = found.operand < 0 ? -1 : names.number_of(found.operand);
  if (t.is_trying) {  // the reason is not read
    t.refuse(found.broken, i, number, a, {});
    return;
  }
  const text axis = axes_text(t.on_mesh, axis_bit(a));
  t.refuse(found.broken, i, number, a, why_not_met(n, names, rule, in, axis, found));
  constant_vector<text> ways;
  if (!t.is_local(a)) {
    ways = remedy_search(t, i, a).run();
  } else {
    inline_vec<held_operand, max_map_arity> operands;
    inline_vec<std::int8_t, max_map_arity> numbers;
    for (int k = 0; k < n.operands.count; ++k) {
      const int is = names.number_of(k);
      const bool has_it = is >= 0 && names.held(is) >= 0;
      numbers.push_back(static_cast<std::int8_t>(has_it ? is : -1));
      operands.push_back(t.held(has_it ? names.held(is) : n.operands[k]));
    }
    ways = local_remedies(t.on_mesh, along, in, operands, numbers, a, (n.local_axes & axis_bit(a)) != 0);
  }
  t.mistakes.back().remedies = ways;
}

}  // namespace gspmd::detail
