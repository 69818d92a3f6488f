// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/passes/typed/type_program.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// A value that replaces another value: the input of a region, or its result.
struct stand_for {
  int is = 0, stands_for = 0;
};

/// Returns the steps whose gradients are sent when `from` is differentiated, last step first. The gradient of `from`
/// passes through these steps to an input that has a gradient. The gradient of an operator sends nothing: the rules of
/// types ensure that.
constexpr constant_vector<typed_step> backward_steps(const graph& g, span<const typed_step> steps, int from,
                                                     span<const int> without_gradient, span<const stand_for> links) {
  const auto count = static_cast<int>(g.nodes.size());
  constant_vector<char> has(g.nodes.size(), 0),
      gets(g.nodes.size(), 0);  // depends on an input with a gradient; `from` depends on it
  const auto at = [&](int i) -> const node& { return g.nodes[static_cast<std::size_t>(i)]; };
  const auto flag = [](constant_vector<char>& list, int i) -> char& { return list[static_cast<std::size_t>(i)]; };
  const auto flows = [&](int i, int k) {
    const operator_class c = facts_of(at(i).op).meets(at(i), monoid::add);
    return is_floating(at(i).type) && is_floating(at(at(i).operands[k]).type) && !c.detaches && (c.selectors >> k & 1U) == 0;
  };
  for (const int i : g.inputs) flag(has, i) = is_floating(at(i).type) ? 1 : 0;
  for (const int i : without_gradient) flag(has, i) = 0;
  for (const auto& l : links) flag(has, l.is) = 0;
  flag(gets, from) = 1;
  for (bool changed = true; changed;) {  // one pass, except with loops
    changed = false;
    const auto raise = [&](constant_vector<char>& list, int i) {
      changed = changed || flag(list, i) == 0;
      flag(list, i) = 1;
    };
    for (int i = 0; i < count; ++i) {
      for (const auto& l : links)
        if (l.is == i && flag(has, l.stands_for) != 0) raise(has, i);
      if (flag(has, i) != 0) continue;
      for (int k = 0; k < at(i).operands.count; ++k)
        if (flag(has, at(i).operands[k]) != 0 && flows(i, k)) raise(has, i);
    }
    for (int i = count - 1; i >= 0; --i) {
      if (flag(gets, i) == 0) continue;
      for (const auto& l : links)
        if (l.is == i && flag(gets, l.stands_for) == 0) raise(gets, l.stands_for);
      for (int k = 0; k < at(i).operands.count; ++k)
        if (flag(gets, at(i).operands[k]) == 0 && flows(i, k)) raise(gets, at(i).operands[k]);
    }
  }
  constant_vector<typed_step> back;
  for (std::size_t s = steps.size(); s-- > 0;) {
    const int i = steps[s].node;
    if (flag(has, i) != 0 && flag(gets, i) != 0 && !steps[s].sends_back.empty()) back.push_back(steps[s]);
  }
  return back;
}

}  // namespace gspmd::detail
