// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "gspmd/detail/passes/typed/program_typer.hpp"

namespace gspmd::detail {

/// Refuses forgotten sums of the local view: sums over a dim whose parts are known to be on several devices. The sum
/// varies, and each device has a partial value of the sum over the whole dim. A nonlinear function of a partial
/// value is refused. Either a reduction over the devices is missing, or the user intends each device's own sum and
/// must write that (to_varying of the summed value). A comparison is allowed: its result varies, and is a predicate.
class local_sums {
 public:
  constexpr local_sums(program_typer& t, int i, const op_rule& rule) : t_(t), i_(i), rule_(rule), names_(t.program, i) {}

  /// Returns false after a mistake.
  constexpr bool are_read_right() {
    const node& n = t_.at(i_);
    const operator_class c = facts_of(n.op).meets(n, monoid::add);
    for (int k = 0; k < n.operands.count; ++k) {
      const axis_mask terms = t_.type(n.operands[k]).parts.terms & t_.local_here;
      const bool is_linear =
          c.takes == partial_class::all || c.takes == partial_class::one || (c.takes == partial_class::first && k == 0);
      if (terms != 0 && !is_linear && n.type != dtype::pred) return refuse_term(k, first_of(terms));
    }
    if (names_.is_in_call() && std::string_view(names_.function()) == "mean")
      if (const axis_mask axes = summed_here(); axes != 0) return refuse_mean(first_of(axes));
    return true;
  }
  /// Returns the axes along which the result is one of several partial values.
  [[nodiscard]] constexpr axis_mask terms_of_result() const {
    const node& n = t_.at(i_);
    const operator_class c = facts_of(n.op).meets(n, monoid::add);
    axis_mask axes = summed_here();
    for (int k = 0; k < n.operands.count && n.type != dtype::pred; ++k)
      if ((c.selectors >> k & 1U) == 0) axes |= t_.type(n.operands[k]).parts.terms;
    return axes;
  }

 private:
  /// Returns the axes that are known to cut a summed dim in all operands that have that dim.
  [[nodiscard]] constexpr axis_mask summed_here() const {
    axis_mask axes = 0;
    for (int f = 0; f < rule_.factors.count; ++f) {
      if (rule_.factors[f].kind != factor_kind::reduction || rule_.reduced_by != monoid::add) continue;
      axis_mask of_all = t_.local_here;
      bool is_any = false;
      for (int k = 0; k < t_.at(i_).operands.count; ++k) {
        const tensor_map& map = rule_.operand(k);
        for (int d = 0; d < map.first.count; ++d)
          if (map.end(d) - map.begin(d) == 1 && map.factors[map.begin(d)] == f) {
            of_all &= t_.type(t_.at(i_).operands[k]).parts.axes_of(d);
            is_any = true;
          }
      }
      if (is_any) axes |= of_all;
    }
    return axes;
  }
  [[nodiscard]] static constexpr int first_of(axis_mask axes) {
    int a = 0;
    while ((axes & axis_bit(a)) == 0) ++a;
    return a;
  }
  [[nodiscard]] constexpr bool is_called() const { return t_.at(i_).local_axes != 0; }
  constexpr void propose_own(const text& axis, std::string_view what, std::string_view own) const {
    text way;
    if (is_called()) way << "local::to_varying<`" << axis << "`, state::varying>(" << what << ')';
    else way << "reinterpret " << what << " from V to V over `" << axis << '`';
    t_.mistakes.back().remedies.push_back(way << " for " << own << ": 0 bytes forward, 0 bytes backward");
  }
  constexpr bool refuse_term(int k, int a) {
    const node& n = t_.at(i_);
    const text axis = axes_text(t_.on_mesh, axis_bit(a));
    text what = names_.operand(k);
    what << " is a sum over a dim, and each device along `" << axis << "` has a part of that dim; " << name_of(n.op)
         << " of the partial values does not give the partial values of the result";
    t_.refuse(mode_mistake::partial_nonlinear, i_, names_.number_of(k), a, what);
    auto& ways = t_.mistakes.back().remedies;
    if (const int number = names_.number_of(k); number >= 0 && names_.held(number) >= 0) {
      remedy_list list(t_.on_mesh, a, t_.local_here, is_called());
      if (is_called())
        list.add(number, row_of(transition_kind::all_reduce, state::partial, state::invariant), partial_by(monoid::add),
                 {state::invariant}, t_.held(n.operands[k]));
      else
        list.add(number, row_of(transition_kind::reinterpret, state::varying, state::partial), {state::varying},
                 partial_by(monoid::add), t_.held(n.operands[k]));
      ways = list.texts();
    }
    propose_own(axis, "the summed value", "one device's own sum");
    return false;
  }
  constexpr bool refuse_mean(int a) {
    const text axis = axes_text(t_.on_mesh, axis_bit(a));
    t_.refuse(mode_mistake::op_on_whole_dim, i_, 0, a,
              text("each device along `") << axis
                                          << "` has a part of a dim of operand 0, and this is the mean of the part; divide the "
                                             "all_reduce of its sum by the whole extent");
    propose_own(axis, "operand 0", "the mean of one device's own");
    return false;
  }

  program_typer& t_;
  int i_;
  const op_rule& rule_;
  user_names names_;
};

}  // namespace gspmd::detail
