// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/typed/type_program.hpp"

namespace gspmd::detail {

/// The type that an input says it has. Its attribute is the axes along which it is a replica.
constexpr value_type type_of_input(const mesh_shape& mesh, const node& n) {
  value_type t = value_type::all(mesh, {state::invariant});
  for (const auto& use : n.annotation.splits) t.set(use.axis, shard_of(use.dim));
  const axis_mask replica = n.attributes.count > 0 ? static_cast<axis_mask>(n.attributes[0]) : 0;
  for (int a = 0; a < mesh.axis_count(); ++a) {
    if ((n.annotation.partial & axis_bit(a)) != 0) t.set(a, partial_by(n.annotation.reduced_by));
    if ((replica & axis_bit(a)) != 0) t.set(a, {state::replica});
  }
  return t;
}

/// The other way round.
constexpr void keep_type_of_input(node& n, const value_type& t) {
  axis_mask replica = 0;
  for (int a = 0; a < t.on.count; ++a)
    if (t.on[a].is == state::replica) replica |= axis_bit(a);
  n.annotated = true;
  n.annotation = t.layout();
  n.attributes.push_back(replica);
}

/// The types of a program in the explicit mode.
constexpr program_typer typed_program(const graph& g) {
  program_typer typer(g, *g.mesh, 0);
  for (const int i : g.inputs) typer.give(i, type_of_input(g.mesh->shape, g.nodes[static_cast<std::size_t>(i)]));
  typer.run();
  return typer;
}

constexpr text first_mistake(const program_typer& typer) {
  const typed_mistake& m = typer.mistakes[0];
  text what = m.what;
  for (std::size_t k = 0; k < m.remedies.size(); ++k) what << (k == 0 ? "; write " : "; or ") << m.remedies[k];
  return what;
}

/// What `graph::find_types` is of a program in the explicit mode.
constexpr void find_types(graph& g, bool annotate) {
  const auto refuse = [&](const text& what) {
    if (g.error.empty()) g.error << what;
    g.broken = mistake::states;
  };
  const program_typer typer = typed_program(g);
  if (!typer.mistakes.empty()) return refuse(first_mistake(typer));
  for (std::size_t k = 0; k < g.outputs.size(); ++k) {
    const value_type& t = typer.types[static_cast<std::size_t>(g.outputs[k])];
    const node& n = g.nodes[static_cast<std::size_t>(g.outputs[k])];
    if (t.layout().partial != 0)
      return refuse(graph::place(n.at, name_of(n.op))
                    << ": output " << static_cast<std::int64_t>(k) << " is " << type_text(*g.mesh, t, n.shape.count, 0)
                    << ": a partial sum is no result yet; reshard it");
  }
  if (!annotate) return;
  for (const auto& s : typer.steps) {
    const deed d = transitions[s.row].forward;
    if (d != deed::keep_first && d != deed::pad_zeros) continue;
    const node& n = g.nodes[static_cast<std::size_t>(s.node)];
    if ((s.axes & ~n.local_axes) == 0) continue;
    return refuse(graph::place(n.at, name_of(n.op)) << ": from " << short_text(s.from) << " to " << short_text(s.to) << " over `"
                                                    << axes_text(*g.mesh, s.axes) << "` puts zeros, which no step does yet");
  }
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    g.nodes[i].annotated = true;
    g.nodes[i].annotation = typer.types[i].layout();
  }
}

}  // namespace gspmd::detail
