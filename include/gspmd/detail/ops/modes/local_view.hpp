// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/even_cuts.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/reshard.hpp"

/// The border between the global and the local view. In the local view, a program describes the work of one device:
/// shapes are those of shards, and the data of devices along the axes of the view has a state (ir/axis_state.hpp).
///
/// No data is sent at the border. For the passes, a value of the local view is one whole tensor that is not split along
/// these axes. It is the data of one device, and other devices may have other data. The types of values keep a program
/// from treating such data as equal (passes/typed).
namespace gspmd::detail {

/// Adds the nodes during its lifetime in the local view of these axes.
class local_scope {
 public:
  constexpr local_scope(graph& g, axis_mask axes) : graph_(g), before_(g.open_local) { g.open_local = axes; }
  constexpr ~local_scope() { graph_.open_local = before_; }
  local_scope(const local_scope&) = delete;

 private:
  graph& graph_;
  axis_mask before_;
};

/// The border of a manual region over `axes`. The annotation of its node is the layout of the value in the global view.
/// The annotation states which dims these axes split, and along which of these axes the value is partial or a replica.
/// Otherwise the value is invariant.
struct region_border {
  bool enters = false;
  axis_mask axes = 0;

  static constexpr region_border of(const node& n) {
    return {n.attributes.items[0] != 0, static_cast<axis_mask>(n.attributes.items[1])};
  }
};

/// Returns the layout of the gradient: partial becomes replica, and replica becomes partial.
constexpr sharding dual(const sharding& s) { return {s.splits, s.replica, monoid::add, s.varying, s.partial}; }

/// Adds a value of the global view to the local view. Nothing is sent. A dim that the axes split must have the same
/// number of elements on each device.
constexpr int add_enter(graph& g, int operand, axis_mask axes, const sharding& layout, location at);
/// Adds a value of the local view to the global view.
constexpr int add_leave(graph& g, int operand, axis_mask axes, const sharding& layout, location at);

/// Adds the memory of `x` with another shape. The caller sets the sharding.
constexpr int add_with_shape(graph& g, int x, const extents& shape, location at);

/// Reshards a value for a region. In programs with types, the types determine the reshard. Otherwise it is an
/// annotation, and other axes may split the value further.
constexpr int add_argument(graph& g, int operand, axis_mask axes, const sharding& layout, location at) {
  if (operand < 0) return -1;
  if (!g.is_explicit) {
    annotation asked = layout.planned();
    const axis_mask closed = g.open_local | axes;
    if ((g.mesh->shape.wide_axes() & ~closed) != 0) {
      asked.open = ~dim_mask{0};
      asked.closed = closed;
    }
    return add_reshard(g, operand, asked, at);
  }
  const axis_mask invariant = axes & ~(layout.replica | layout.partial | layout.split_axes());
  return add_requested_state(g, operand, {layout, invariant, true}, at);
}

/// A value on the other side of the border of a manual region, in the same memory.
///
/// **Shapes.** Global shape [n] <-> local shape [n / parts], for dims that the axes of the region split. **Splits.**
/// Axes of the region split only the global side. Other axes may split both sides equally, if they cut the parts
/// evenly.
struct local_view_op : plain_operator, without_steps {
  static constexpr const char* name = "local_view";
  static constexpr leading_dim leading{};
  static constexpr origin made = origin::viewed;
  static constexpr realisation runs = realisation::alias;
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  /// A value that is partial along axes outside of the region stays partial.
  static constexpr operator_class meets(const node&, monoid) { return {partial_class::one}; }
  static constexpr replication_words replication{
      "manual", "a part that a region has is cut evenly by the axes that are not the region's, and not those of",
      "split it by axes that cut the parts evenly, or along another dim, or write allow_replication(...) around the region"};

  /// If axes are left to the planner, their splits are the same on both sides of the border. A dim that the axes of the
  /// region split is two factors in the global view: the parts, and the elements of a part. Dims that stack devices
  /// precede the other dims.
  ///     x [8,6], split along dim 0 over stage:2  ->  [4,6]      (ab)c->bc, a over stage
  /// In other programs, the types state both shardings, so no dim of one side is a dim of the other side.
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const extents &from = operand_of(g, n, 0).shape, &to = n.shape;
    if (n.annotation.closed != 0) {
      tensor_map maps[2];
      const auto stacked = [&rule](tensor_map& map, const extents& shape, int count) {
        for (int d = 0; d < count; ++d) {
          map.begin_dim();
          map.add_factor(rule.add_factor(shape[d]));
        }
        return count < 0 ? 0 : count;
      };
      int i = stacked(maps[0], from, from.count - to.count), j = stacked(maps[1], to, to.count - from.count);
      for (; i < from.count; ++i, ++j) {
        const auto held = from[i] < to[j] ? from[i] : to[j];
        for (int side = 0; side < 2; ++side) {
          maps[side].begin_dim();
          if (const auto all = side == 0 ? from[i] : to[j]; all != held) maps[side].add_factor(rule.add_factor(all / held));
        }
        const int f = rule.add_factor(held);
        for (auto& map : maps) map.add_factor(f);
      }
      for (const auto& map : maps) rule.maps.push_back(map);
      return;
    }
    for (const extents* const shape : {&from, &to}) {
      tensor_map map;
      for (int d = 0; d < shape->count; ++d) {
        map.begin_dim();
        map.add_factor(rule.add_factor((*shape)[d]));
      }
      rule.maps.push_back(map);
    }
  }
  /// The gradient passes the border in the other direction.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    const auto [enters, axes] = region_border::of(n);
    const sharding back = dual(n.annotation.layout);
    if (enters) return b.send(0, add_leave(g, b.dy().id(), axes, back, n.at));
    if (g.is_explicit) {
      const int dy = add_cotangent(g, b.dy().id(), b.visited(), n.at);
      return b.send(0, add_enter(g, dy, axes, back, n.at));
    }
    // Outside of typed programs, a gradient is equal on all devices. If the result is a replica, the first device takes
    // the gradient as its partial value.
    sharding equal = back;
    equal.partial = 0;
    int dy = add_enter(g, add_argument(g, b.dy().id(), axes, equal, n.at), axes, equal, n.at);
    const local_scope inside(g, g.open_local | axes);
    if (back.partial != 0 && dy >= 0)
      dy = add_transition(g, dy, {transition_kind::convert, back.partial, {state::invariant}, partial_by(monoid::add)}, true,
                          n.at);
    b.send(0, dy);
  }
};

/// Returns a node that is a value on the other side of a border, or the memory of a value with another shape.
constexpr node view_of(const graph& g, int operand, location at) {
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  node n = source(code_of<local_view_op>, x.type, x.shape, at);
  n.is_border = true;
  n.operands.push_back(operand);
  return n;
}
constexpr void keep_border(node& n, bool enters, axis_mask axes, const sharding& layout) {
  n.annotated = true;
  n.annotation = layout;
  add_attributes(n, enters, axes);
}

constexpr int add_with_shape(graph& g, int x, const extents& shape, location at) {
  if (x < 0) return -1;
  node n = view_of(g, x, at);
  n.shape = shape;
  return g.add(n);
}

constexpr int add_leave(graph& g, int operand, axis_mask axes, const sharding& layout, location at) {
  if (operand < 0) return -1;
  node n = view_of(g, operand, at);
  for (int d = 0; d < n.shape.count; ++d) n.shape[d] = saturating_multiply(n.shape[d], parts_of(g.mesh->shape, layout, d));
  keep_border(n, false, axes, layout);
  const local_scope outside(g, g.nodes[static_cast<std::size_t>(operand)].local_axes & ~axes);
  return g.add_sized(n);
}

constexpr int add_enter(graph& g, int operand, axis_mask axes, const sharding& layout, location at) {
  if (operand < 0) return -1;
  node n = view_of(g, operand, at);
  for (int d = 0; d < n.shape.count; ++d) {
    if (!cuts_evenly(g.mesh->shape, n.shape[d], {}, layout, d))
      return g.fail(at, "manual", mistake::states,
                    text("in_spec_mismatch: of the argument ")
                        << shape_text(n.shape) << ' ' << uneven_text(*g.mesh, n.shape, {}, layout, d));
    n.shape[d] /= parts_of(g.mesh->shape, layout, d);
  }
  keep_border(n, true, axes, layout);
  const local_scope inside(g, g.open_local | axes);
  return g.add(n);
}

}  // namespace gspmd::detail
