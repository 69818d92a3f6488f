// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/passes/typed/border.hpp"
#include "gspmd/detail/passes/typed/operator_types.hpp"
#include "gspmd/detail/passes/typed/region_types.hpp"
#include "gspmd/detail/passes/typed/reshard_types.hpp"
#include "gspmd/detail/passes/typed/transition_types.hpp"
#include "gspmd/detail/support/planning_work.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// Types a value at the border of a manual region.
constexpr void program_typer::visit_border(int i) {
  const node& n = at(i);
  const bool enters = region_border::of(n).enters;
  border_crossing found;  // in a conditional expression GCC 12 frees the text
  if (enters) found = enter(on_mesh, n, type(n.operands[0]));
  else found = leave(on_mesh, n, type(n.operands[0]));
  if (found.broken != mode_mistake::none) {
    refuse(found.broken, i, 0, found.axis, found.what);
    return;
  }
  if (enters && !only_regions && !n.in_gradient)  // an argument must have the state that is specified: nothing is sent for it
    for (const auto& s : steps) {
      if (s.node != n.operands[0] || (s.sends.empty() && s.sends_back.empty())) continue;
      int a = 0;
      while ((changed_axes(s.node) & axis_bit(a)) == 0) ++a;
      refuse(mode_mistake::in_spec_mismatch, i, 0, a,
             text("the argument is ") << words_of(type(at(s.node).operands[0]), n.shape.count) << " and is taken as "
                                      << words_of(type(s.node), n.shape.count) << "; reshard it first, or take it as it is");
      return;
    }
  type(i) = found.is;
}

constexpr void program_typer::visit(int i) {
  const node& n = at(i);
  const origin made = facts_of(n.op).made;
  local_here = base_local_ | n.local_axes;
  if (only_regions && n.local_axes == 0 && made != origin::viewed) {
    type(i) = value_type::all_constant(mesh());
    return;
  }
  if (made != origin::given)
    for (const int o : n.operands)
      if (!type(o).is_known) return;
  switch (made) {
    case origin::given: break;
    case origin::source: type(i) = value_type::all_constant(mesh()); break;
    case origin::renamed:
      if (state_change::is_one(n)) transition_typer(*this).visit(i);
      else if (cotangent_of(n) != cotangent::none) reshard_typer(*this).visit_cotangent(i);
      else if (wanted[static_cast<std::size_t>(i)] >= 0)
        return reshard_typer(*this).visit_wanted(i, wanted_types[static_cast<std::size_t>(wanted[static_cast<std::size_t>(i)])]);
      else if (n.annotated && !only_regions) reshard_typer(*this).visit_reshard(i);
      else if (n.annotated) reshard_typer(*this).visit_annotation(i);
      else type(i) = type(n.operands[0]);
      break;
    case origin::viewed: visit_border(i); break;
    case origin::shards: operator_typer(*this).visit(i); break;
    case origin::result:
      if (further.count >= i - n.operands[0]) type(i) = further[i - n.operands[0] - 1];
      break;
    case origin::region: region_typer(*this).visit(i); break;
  }
  if (const int w = wanted[static_cast<std::size_t>(i)]; w >= 0 && type(i).is_known)
    reshard_typer(*this).cut_for(i, wanted_types[static_cast<std::size_t>(w)]);
}

constexpr void program_typer::run_here() {
  types.resize(program.nodes.size(), value_type{});
  wanted.resize(program.nodes.size(), -1);
  type_again = [](program_typer& t, int i) { t.visit(i); };
  count_planning(static_cast<std::int64_t>(program.nodes.size()) - next);
  for (; next < static_cast<int>(program.nodes.size()); ++next) visit(next);
  if (program.has_manual_regions && mistakes.empty())  // the condition of a loop may be typed after the steps that depend on it
    for (const auto& s : steps) step_writer(*this).refuse_if_devices_part(s);
}

template <class = once>
void type_at_run_time(program_typer& typer);

constexpr void program_typer::run() {
  if (__builtin_is_constant_evaluated()) run_here();
  else type_at_run_time(*this);
}

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/passes/typed/type_program.ipp"
#endif
