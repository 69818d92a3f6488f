// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/reshard.hpp"

/// The border between the global view and the local one, in which a program is what one device does: shapes are those of shards, and
/// what devices hold along the axes of the view is a state (ir/axis_state.hpp).
///
/// Nothing happens at the border. A value of the local view is, for the passes, one whole tensor that is not split along these axes: which
/// is what a device holds, though other devices may hold another one. Types see to it that nobody takes these for equal (passes/typed).
namespace gspmd::detail {

/// The nodes that are added to a program while this lives stand in the local view of these axes.
class local_scope {
 public:
  constexpr local_scope(graph& g, axis_mask axes) : graph_(g), before_(g.open_local) { g.open_local = axes; }
  constexpr ~local_scope() { graph_.open_local = before_; }
  local_scope(const local_scope&) = delete;

 private:
  graph& graph_;
  axis_mask before_;
};

/// The layout of a value in the global view at the border of a manual region: along the axes of the region the dims that they split, where
/// it is partial, and where it is a replica; else it is invariant.
struct border_spec {
  annotation layout;
  axis_mask axes = 0, replica = 0;

  constexpr void keep(node& n, bool enters) const {
    for (const std::int64_t a : {std::int64_t{enters ? 1 : 0}, std::int64_t{axes}, std::int64_t{replica},
                                 std::int64_t{layout.partial}, std::int64_t{static_cast<int>(layout.reduced_by)}})
      n.attributes.push_back(a);
    for (const auto& use : layout.splits) {
      n.attributes.push_back(use.axis);
      n.attributes.push_back(use.dim);
    }
  }
  static constexpr border_spec of(const node& n) {
    const std::int64_t* const a = n.attributes.items;
    border_spec s{{}, static_cast<axis_mask>(a[1]), static_cast<axis_mask>(a[2])};
    s.layout.partial = static_cast<axis_mask>(a[3]);
    s.layout.reduced_by = static_cast<monoid>(a[4]);
    for (int k = 5; k + 1 < n.attributes.count; k += 2)
      s.layout.splits.push_back(axis_use{static_cast<std::int8_t>(a[k]), static_cast<std::int8_t>(a[k + 1])});
    return s;
  }
  static constexpr bool enters(const node& n) { return n.attributes.items[0] != 0; }

  [[nodiscard]] constexpr axis_state on(int axis) const {
    for (const auto& use : layout.splits)
      if (use.axis == axis) return shard_of(use.dim);
    if ((layout.partial & axis_bit(axis)) != 0) return partial_by(layout.reduced_by);
    return {(replica & axis_bit(axis)) != 0 ? state::replica : state::invariant};
  }
  /// Returns the border of the gradient: what is partial becomes a replica, and the other way round.
  [[nodiscard]] constexpr border_spec dual() const {
    border_spec d = *this;
    d.layout.partial = replica;
    d.layout.reduced_by = monoid::add;
    d.replica = layout.partial;
    return d;
  }
  [[nodiscard]] constexpr std::int64_t parts_of(const mesh_shape& mesh, int dim) const {
    std::int64_t n = 1;
    for (const auto& use : layout.splits)
      if (use.dim == dim && (axes & axis_bit(use.axis)) != 0) n *= mesh.sizes[use.axis];
    return n;
  }
};

/// Adds a value of the global view in the local one: of what it is, nothing is sent for it. A dim that the axes split must have as many
/// elements on each device.
constexpr int add_enter(graph& g, int operand, const border_spec& spec, location at);
/// Adds a value of the local view in the global one.
constexpr int add_leave(graph& g, int operand, const border_spec& spec, location at);

/// Adds the memory of `x` under another shape; the sharding is for the caller to say.
constexpr int add_with_shape(graph& g, int x, const extents& shape, location at);

/// Brings a value to where a region takes it: as types say, in programs that have them; else as by `annotate`, and other axes may split it
/// further.
constexpr int add_argument(graph& g, int operand, const border_spec& spec, location at) {
  if (operand < 0) return -1;
  if (g.find_types == nullptr) {
    annotation layout = spec.layout;
    const axis_mask closed = g.open_local | spec.axes;
    const bool is_all = (g.mesh->shape.wide_axes() & ~closed) == 0;
    if (!is_all) layout.open = ~dim_mask{0};
    const int id = add_reshard(g, operand, layout, at);
    if (id >= 0 && !is_all) g.nodes[static_cast<std::size_t>(id)].closed_axes = closed;
    return id;
  }
  return add_requested_state(
      g, operand, {spec.layout, spec.replica, spec.axes & ~(spec.replica | spec.layout.partial | spec.layout.split_axes()), true},
      at);
}

struct local_view_op : plain_operator, without_steps {
  static constexpr const char* name = "local_view";
  static constexpr leading_dim leading{.first = 6, .step = 2, .count = max_axes};
  static constexpr origin made = origin::viewed;
  static constexpr realisation runs = realisation::alias;
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  /// Along axes that are not the region's terms stay terms.
  static constexpr operator_class meets(const node&, monoid) { return {partial_class::one}; }
  static constexpr replication_words replication{
      "manual", "a part that a region has is cut evenly by the axes that are not the region's, and not those of",
      "split it by axes that cut the parts evenly, or along another dim, or write allow_replication(...) around the region"};

  /// Where axes are left to the planner, what they split is split on both sides: a dim that the axes of the region cut, or put together,
  /// has them as a factor of its own, major to what devices hold of it; what is stacked on devices has dims before the others. In other
  /// programs no dim of the one is a dim of the other: types say how both lie.
  ///     x [8,6], split along dim 0 over stage:2  ->  [4,6]      (ab)c->bc, a over stage
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const extents &from = operand_of(g, n, 0).shape, &to = n.shape;
    if (n.closed_axes != 0) {
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
  /// The way back over the border.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    const border_spec spec = border_spec::of(n), back = spec.dual();
    if (border_spec::enters(n)) return b.send(0, add_leave(g, b.dy().id(), back, n.at));
    if (g.find_types != nullptr) {
      const int dy = add_cotangent(g, b.dy().id(), b.visited(), n.at);
      return b.send(0, add_enter(g, dy, back, n.at));
    }
    // Where types end, a gradient is equal on all devices: of a result that is a replica the first one takes it, as its term.
    border_spec equal = back;
    equal.layout.partial = 0;
    int dy = add_enter(g, add_argument(g, b.dy().id(), equal, n.at), equal, n.at);
    const local_scope inside(g, g.open_local | spec.axes);
    if (spec.replica != 0 && dy >= 0)
      dy = add_transition(g, dy, {transition_kind::convert, spec.replica, {state::invariant}, partial_by(monoid::add)}, true,
                          n.at);
    b.send(0, dy);
  }
};

constexpr int add_with_shape(graph& g, int x, const extents& shape, location at) {
  if (x < 0) return -1;
  node n = source(code_of<local_view_op>, g.nodes[static_cast<std::size_t>(x)].type, shape, at);
  n.is_border = true;
  n.operands.push_back(x);
  return g.add(n);
}

constexpr int add_leave(graph& g, int operand, const border_spec& spec, location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  node n = source(code_of<local_view_op>, x.type, x.shape, at);
  n.is_border = true;
  n.operands.push_back(operand);
  for (int d = 0; d < n.shape.count; ++d) n.shape[d] = saturating_multiply(n.shape[d], spec.parts_of(g.mesh->shape, d));
  spec.keep(n, false);
  const local_scope outside(g, g.nodes[static_cast<std::size_t>(operand)].local_axes & ~spec.axes);
  return g.add_sized(n);
}

constexpr int add_enter(graph& g, int operand, const border_spec& spec, location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  node n = source(code_of<local_view_op>, x.type, x.shape, at);
  n.is_border = true;
  n.operands.push_back(operand);
  for (int d = 0; d < n.shape.count; ++d) {
    const auto parts = spec.parts_of(g.mesh->shape, d);
    if (n.shape[d] % parts != 0)
      return g.fail(at, "manual", mistake::states,
                    text("in_spec_mismatch: dim ")
                        << d << " of the argument " << shape_text(n.shape) << " has " << n.shape[d] << " elements, which are not "
                        << parts << " equal parts, and devices run one program; pad it, or split another dim");
    n.shape[d] /= parts;
  }
  spec.keep(n, true);
  const local_scope inside(g, g.open_local | spec.axes);
  return g.add(n);
}

}  // namespace gspmd::detail
