// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/automatic_axes.hpp"
#include "gspmd/detail/ops/modes/explicit_change.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Returns the mesh as the automatic axes see it: one device along all other axes.
constexpr mesh_shape without_explicit_axes(const mesh_info& mesh) {
  mesh_shape seen = mesh.shape;
  for (int a = 0; a < seen.axis_count(); ++a)
    if ((mesh.automatic_axes & axis_bit(a)) == 0) seen.sizes[a] = 1;
  seen.order = seen.position = nullptr;
  return seen;
}

/// Returns the request for the plan of the automatic axes. The memory limit applies to the plan of the program on all
/// axes.
constexpr plan_request asked_of_automatic(const mesh_info& mesh) {
  plan_request asked;
  asked.network = mesh.request.network;
  asked.is_searched = mesh.request.is_searched;
  return asked;
}

/// A program with typed explicit axes, as the automatic axes see it: an automatic program on a mesh without the
/// explicit axes. A change of the layout along explicit axes is a separate operator (modes/explicit_change.hpp).
struct along_automatic {
  graph program;
  vec<int> typed;  // by node of `program`: the node of the typed program

  constexpr explicit along_automatic(const graph& g) : program(g.without_nodes()), typed_(g) {
    program.is_explicit = false;
    const axis_mask automatic = g.mesh->automatic_axes;
    vec<int> number(g.nodes.size(), -1);
    for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
      node n = g.nodes[i];
      const origin made = facts_of(n.op).made;
      const bool is_changed = is_change(i);
      if (made == origin::renamed && !names_alike(n)) make_reshard(n);
      for (auto& o : n.operands) o = number[o];
      n.region = n.region < 0 ? -1 : number[n.region];
      const annotation said = along(n, automatic);
      n.annotated = is_said(n, automatic) && !is_changed;
      n.annotation = is_changed ? annotation{} : said;
      n.annotation.closed = made == origin::viewed ? ~automatic : 0;
      if (is_changed) make_explicit_change(n, moved_dims(i), is_linear(i));
      number[i] = push(n, i);
      if (!is_changed || !is_said(g.nodes[i], automatic)) continue;
      node lies = n;
      make_reshard(lies);
      lies.operands[0] = number[i];
      lies.annotated = true;
      lies.annotation = said;
      number[i] = push(lies, i);
    }
    for (const int i : g.inputs) program.inputs.push_back(number[i]);
    for (const int i : g.outputs) program.outputs.push_back(number[i]);
  }
  /// Returns the sharding of a value by its type.
  [[nodiscard]] constexpr sharding by_types(int typed_node) const {
    return part_along(typed_.nodes[typed_node].annotation.layout, ~typed_.mesh->automatic_axes);
  }
  /// Returns true if a node changes the layout of its operand along explicit axes.
  [[nodiscard]] constexpr bool is_change(int i) const {
    const node& n = typed_.nodes[i];
    if (facts_of(n.op).made != origin::renamed) return false;
    return written_step::count_of(n) > 0 || by_types(i) != by_types(n.operands[0]);
  }

 private:
  constexpr int push(const node& n, int of) {
    program.nodes.push_back(n);
    typed.push_back(of);
    return static_cast<int>(program.nodes.size()) - 1;
  }
  /// is_said() returns true if the user annotates a value along automatic axes. along() returns that annotation.
  [[nodiscard]] static constexpr bool is_said(const node& n, axis_mask automatic) {
    const origin made = facts_of(n.op).made;
    return n.annotated && (n.annotation.layout.split_axes() & automatic) != 0 &&
           (made == origin::given || made == origin::renamed);
  }
  [[nodiscard]] static constexpr annotation along(const node& n, axis_mask automatic) {
    if (!is_said(n, automatic)) return {};
    annotation said = part_along(n.annotation.layout, automatic);
    said.open = n.annotation.open;
    said.stages = n.annotation.stages;
    return said;
  }
  [[nodiscard]] constexpr dim_mask moved_dims(int i) const {
    const node& n = typed_.nodes[i];
    const sharding from = by_types(n.operands[0]), to = by_types(i);
    axis_mask axes = 0;
    for (int k = 0; k < written_step::count_of(n); ++k) axes |= written_step::of(n, k).axes;
    dim_mask dims = 0;
    for (int d = 0; d < n.shape.count; ++d)
      if (((from.axes_of(d) | to.axes_of(d)) & axes) != 0 || from.axes_of(d) != to.axes_of(d)) dims |= dim_bit(d);
    return dims;
  }
  [[nodiscard]] constexpr bool is_linear(int i) const {
    const sharding from = by_types(typed_.nodes[i].operands[0]), to = by_types(i);
    return (from.partial == 0 || from.reduced_by == monoid::add) && (to.partial == 0 || to.reduced_by == monoid::add);
  }

  const graph& typed_;
};

}  // namespace gspmd::detail
