// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/add_pass.hpp"
#include "gspmd/detail/passes/typed/automatic_axes.hpp"
#include "gspmd/detail/passes/typed/type_program.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// Returns true if types apply to a program. They do not if all axes of its mesh are automatic.
constexpr bool has_typed_axes(const mesh_info& mesh) {
  return mesh.automatic_axes == 0 || mesh.automatic_axes != axis_bit(mesh.shape.axis_count()) - 1;
}

/// Returns the type that an input declares.
constexpr value_type type_of_input(const mesh_info& mesh, const node& n) {
  return value_type::of(n.annotation.layout).without(mesh.automatic_axes);
}

/// Passes the types of the inputs that are not typed yet to the typer.
constexpr void give_inputs(program_typer& typer, const graph& g) {
  for (const int i : g.inputs)
    if (i >= typer.next) typer.give(i, type_of_input(*g.mesh, g.nodes[static_cast<std::size_t>(i)]));
}

/// Returns the types of a program in the explicit mode that is being traced, up to this point. Each node is typed
/// once. Typing begins again if the type of an input was declared after it had been queried. It also begins again
/// after a refusal, because a permission can follow later (with_exchange).
constexpr const program_typer& types_up_to_here(graph& g) {
  const auto begin = [&g] { g.typer.set(new program_typer(g, *g.mesh, 0), [](program_typer* typer) { delete typer; }); };
  if (g.typer.get() == nullptr || !g.typer.get()->mistakes.empty()) begin();
  for (const int i : g.inputs)
    if (i < g.typer.get()->next &&
        !(g.typer.get()->types[static_cast<std::size_t>(i)] == type_of_input(*g.mesh, g.nodes[static_cast<std::size_t>(i)])))
      begin();
  program_typer& typer = *g.typer.get();
  typer.types.resize(g.nodes.size());
  give_inputs(typer, g);
  typer.run();
  return typer;
}

/// Returns the types of a program in the explicit mode.
constexpr program_typer typed_program(const graph& g) {
  program_typer typer(g, *g.mesh, 0);
  give_inputs(typer, g);
  typer.run();
  return typer;
}

constexpr text first_mistake(const program_typer& typer) {
  const typed_mistake& m = typer.mistakes[0];
  text what = m.what;
  for (std::size_t k = 0; k < m.remedies.size(); ++k) what << (k == 0 ? "; write " : "; or ") << m.remedies[k];
  return what;
}

/// Adds the user's annotation along automatic axes to the layout of a value. If there is no such annotation, the value
/// is not annotated any more.
constexpr void note_automatic(const mesh_info& mesh, node& n, const annotation& said) {
  const sharding rest = part_along(said.layout, mesh.automatic_axes);
  n.annotated = !rest.splits.empty();
  n.annotation = put_behind(mesh.shape, n.shape, n.annotation.layout, rest);
  n.annotation.open = n.annotated ? said.open : ~dim_mask{0};
  if (n.annotated) n.annotation.stages = said.stages;
}

/// Records the types of a program in its nodes: the layout of every value, and the steps of reshards. Manual regions
/// are planned separately. Returns false if the program cannot be planned.
constexpr bool note_types(graph& g, const program_typer& typer) {
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
    if (facts_of(n.op).made == origin::renamed && !state_change::is_local(n)) n.attributes.clear();
  }
  for (const auto& s : typer.steps) {
    node& n = g.nodes[static_cast<std::size_t>(s.node)];
    if (facts_of(n.op).made != origin::renamed || (n.local_axes != 0 && (s.axes & ~n.local_axes) == 0)) continue;
    if (!s.is_planned) continue;
    if (!s.is_searched) written_step{s.does, s.axes}.keep(n);
    else if (written_step::count_of(n) == 0) written_step::of_reshard(typer.changed_axes(s.node)).keep(n);
  }
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    node& n = g.nodes[i];
    const annotation said = n.annotation;
    n.annotation = typer.types[i].layout.planned();
    const origin made = facts_of(n.op).made;
    const bool is_said = n.annotated && (made == origin::given || made == origin::renamed);
    n.annotated = true;
    if (g.mesh->automatic_axes != 0) note_automatic(*g.mesh, n, is_said ? said : annotation{});
  }
  return true;
}

/// Checks the annotations of inputs along automatic axes, which types do not cover. Returns false after an error.
constexpr bool check_automatic_inputs(graph& g) {
  if (g.mesh->automatic_axes == 0) return true;
  for (const int i : g.inputs) {
    const node& n = g.nodes[static_cast<std::size_t>(i)];
    if (const text what = automatic_mistake(*g.mesh, n.shape, n.annotation.layout); !what.empty()) {
      g.fail(n.at, "input", mistake::states, what);
      return false;
    }
  }
  return true;
}

/// Finds the types of a program in the explicit mode, or records the first mistake. If `annotate` is set, the types
/// become annotations.
constexpr void find_types(graph& g, bool annotate) {
  if (!check_automatic_inputs(g)) return;
  const program_typer typer = typed_program(g);
  if (typer.mistakes.empty()) {
    if (annotate && note_types(g, typer)) plan_automatic_axes(g);
    return;
  }
  if (g.error.empty()) g.error << first_mistake(typer);
  g.broken = mistake::states;
}

/// For explicit programs without manual regions. passes/typed/manual_regions.hpp types the other programs.
struct of_typed_programs : plain_pass {
  static constexpr bool applies(const graph& g) { return g.is_explicit && !g.has_manual_regions; }
};
/// Finds a mistake in the types of a program, while its operators are as they were written.
struct check_types_pass : of_typed_programs {
  static constexpr const char* name = "check types";
  static constexpr pass_position position = pass_position::as_written;
  static constexpr node_order run(graph& g) { return find_types(g, false), node_order::kept; }
};
/// Turns the types into annotations.
struct types_pass : of_typed_programs {
  static constexpr const char* name = "types";
  static constexpr pass_position position = pass_position::in_order;
  static constexpr node_order run(graph& g) { return find_types(g, true), node_order::kept; }
};

/// Makes a program explicit: types state the sharding of every value.
constexpr void make_explicit(graph& g) {
  g.is_explicit = true;
  add_pass<check_types_pass>(g);
  add_pass<types_pass>(g);
}

}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/passes/typed/find_types_instances.ipp"
#endif
