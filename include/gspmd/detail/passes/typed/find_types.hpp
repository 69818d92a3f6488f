// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/typed/type_program.hpp"

namespace gspmd::detail {

/// The type that an input says it has.
constexpr value_type type_of_input(const node& n) { return value_type::of(n.annotation.layout); }

/// The types of a program in the explicit mode that is being traced, up to here. Each node is typed once; again where the type of an input
/// was said after it had been asked for, or where something was refused: what allows it may be said later (with_exchange).
constexpr const program_typer& types_up_to_here(graph& g) {
  const auto begin = [&g] { g.typer.set(new program_typer(g, *g.mesh, 0), [](program_typer* typer) { delete typer; }); };
  if (g.typer.get() == nullptr || !g.typer.get()->mistakes.empty()) begin();
  for (const int i : g.inputs)
    if (i < g.typer.get()->next &&
        !(g.typer.get()->types[static_cast<std::size_t>(i)] == type_of_input(g.nodes[static_cast<std::size_t>(i)])))
      begin();
  program_typer& typer = *g.typer.get();
  typer.types.resize(g.nodes.size());
  for (const int i : g.inputs)
    if (i >= typer.next) typer.give(i, type_of_input(g.nodes[static_cast<std::size_t>(i)]));
  typer.run();
  return typer;
}

/// The types of a program in the explicit mode.
constexpr program_typer typed_program(const graph& g) {
  program_typer typer(g, *g.mesh, 0);
  for (const int i : g.inputs) typer.give(i, type_of_input(g.nodes[static_cast<std::size_t>(i)]));
  typer.run();
  return typer;
}

constexpr text first_mistake(const program_typer& typer) {
  const typed_mistake& m = typer.mistakes[0];
  text what = m.what;
  for (std::size_t k = 0; k < m.remedies.size(); ++k) what << (k == 0 ? "; write " : "; or ") << m.remedies[k];
  return what;
}

/// Writes down in a program what its types say: how every value lies, and the steps of what is renamed; but of manual regions, which are
/// planned by themselves. False where it cannot be planned.
constexpr bool note_types(graph& g, const program_typer& typer) {
  const auto is_written_in_region = [&](std::size_t i) {
    const node& n = g.nodes[i];
    return n.local_axes != 0 && state_change::is_one(n) && (state_change::of(n).axes & ~n.local_axes) == 0;
  };
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const value_type& t = typer.types[i];
    node& n = g.nodes[i];
    for (int a = 0; a < g.mesh->shape.axis_count(); ++a)
      if (t.on(a).is == state::partial && t.on(a).reduced_by != t.layout.reduced_by && (n.local_axes & axis_bit(a)) == 0) {
        if (g.error.empty())
          g.error << graph::place(n.at, name_of(n.op)) << ": the result is " << type_text(*g.mesh, t, n.shape.count, 0)
                  << ": plans reduce by one function at a time; reshard one of the axes before";
        g.broken = mistake::states;
        return false;
      }
    if (facts_of(n.op).made == origin::renamed && !is_written_in_region(i)) n.attributes.clear();
  }
  for (const auto& s : typer.steps) {
    node& n = g.nodes[static_cast<std::size_t>(s.node)];
    if (facts_of(n.op).made != origin::renamed || (n.local_axes != 0 && (s.axes & ~n.local_axes) == 0)) continue;
    if (const device_action d = transitions[s.row].forward; d != device_action::nothing || s.to.is == state::partial)
      written_step{d, s.axes}.keep(n);
  }
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    g.nodes[i].annotated = true;
    g.nodes[i].annotation = typer.types[i].layout.planned();
  }
  return true;
}

/// The function for `graph::find_types` of a program in the explicit mode.
constexpr void find_types(graph& g, bool annotate) {
  const program_typer typer = typed_program(g);
  if (typer.mistakes.empty()) {
    if (annotate) note_types(g, typer);
    return;
  }
  if (g.error.empty()) g.error << first_mistake(typer);
  g.broken = mistake::states;
}

}  // namespace gspmd::detail
