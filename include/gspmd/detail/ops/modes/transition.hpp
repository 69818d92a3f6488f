// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ir/transition.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/support/span.hpp"

/// The additional operators of programs in the explicit and the manual mode.
namespace gspmd::detail {

/// A change of a value's state along axes. Before the change, the value has one state along all these axes.
struct state_change {
  transition_kind by = transition_kind::convert;
  axis_mask axes = 0;
  axis_state from, to;

  constexpr void keep(node& n) const {
    add_attributes(n, by, axes, from.is, from.dim, from.reduced_by, to.is, to.dim, to.reduced_by);
  }
  static constexpr state_change of(const node& n) {
    const std::int64_t* const a = n.attributes.items;
    return {static_cast<transition_kind>(a[0]),
            static_cast<axis_mask>(a[1]),
            {static_cast<state>(a[2]), static_cast<std::int8_t>(a[3]), static_cast<monoid>(a[4])},
            {static_cast<state>(a[5]), static_cast<std::int8_t>(a[6]), static_cast<monoid>(a[7])}};
  }
  /// Returns true if a node is a transition. Among renamed operators, only transitions have at least 8 attributes. A
  /// transition without an operand is the position of a device on the axes, which is varying.
  static constexpr bool is_one(const node& n) { return n.attributes.count >= 8; }
  /// Returns true if a node is a transition along axes of its manual region.
  static constexpr bool is_local(const node& n) { return is_one(n) && n.local_axes != 0 && (of(n).axes & ~n.local_axes) == 0; }
  [[nodiscard]] constexpr int row() const {
    return row_of(by, from.is == state::constant ? (to.is == state::replica ? state::invariant : state::replica) : from.is,
                  to.is);
  }
};

/// The source of each device's data in a permutation along axes. Device k sends to device k + `by`, cyclically (round)
/// or not (ended), or to the k-th device from the end (reverse). With `listed`, device i receives the data of device
/// from[i], or zeros if from[i] is -1.
struct device_shift {
  enum class kind : std::uint8_t { none, round, ended, reverse, listed };
  kind is = kind::none;
  std::int64_t by = 0;
  inline_vec<std::int8_t, max_placed> from{};

  constexpr void keep(node& n) const {
    add_attributes(n, is, by);
    for (const auto i : from) add_attributes(n, i);
  }
  static constexpr device_shift of(const node& n) {
    if (n.attributes.count < 10) return {};
    device_shift s{static_cast<kind>(n.attributes.items[8]), n.attributes.items[9]};
    for (int i = 10; i < n.attributes.count; ++i) s.from.push_back(static_cast<std::int8_t>(n.attributes.items[i]));
    return s;
  }
  [[nodiscard]] constexpr device_shift inverse() const {
    device_shift back{is, -by};
    for (int i = 0; i < from.count; ++i) back.from.push_back(-1);
    for (int i = 0; i < from.count; ++i)
      if (from[i] >= 0) back.from[from[i]] = static_cast<std::int8_t>(i);
    return back;
  }
};

/// Changes the local shape for a change along n devices. S(d) joins or splits dim d; V stacks or splits its own dim 0.
/// Returns false if the dim does not exist or cannot be split into n parts.
///   [4,6], 2 devices: all_gather from S(0) [8,6], all_gather from V [2,4,6], reduce_scatter to S(1) [4,3]
constexpr bool change_local_shape(const state_change& c, std::int64_t n, extents& shape) {
  const bool joins = c.by == transition_kind::all_gather || c.by == transition_kind::all_to_all;
  const bool cuts = c.by == transition_kind::reduce_scatter || c.by == transition_kind::all_to_all ||
                    (c.by == transition_kind::convert && (c.to.is == state::shard || c.to.is == state::varying));
  const bool pads = c.by == transition_kind::convert && (c.from.is == state::shard || c.from.is == state::varying);
  if (joins || pads) {
    if (c.from.is == state::varying) {
      if (shape.count == max_rank) return false;
      shape.insert(0, n);
    } else if (c.from.is == state::shard) {
      if (c.from.dim < 0 || c.from.dim >= shape.count) return false;
      shape[c.from.dim] = saturating_multiply(shape[c.from.dim], n);
    }
  }
  if (!cuts) return true;
  if (c.to.is == state::varying) {
    if (shape.count == 0 || shape[0] != n) return false;
    for (int d = 0; d + 1 < shape.count; ++d) shape[d] = shape[d + 1];
    shape.pop_back();
  } else {
    if (c.to.dim < 0 || c.to.dim >= shape.count || shape[c.to.dim] % n != 0) return false;
    shape[c.to.dim] /= n;
  }
  return true;
}

/// Adds a transition. In the local view, shapes are those of shards, so a transition changes the shape.
constexpr int add_transition(graph& g, int operand, const state_change& change, bool is_local, location at,
                             const device_shift& shift = {});

constexpr int add_cotangent(graph& g, int dy, int x, location at);

/// The kinds of gradient nodes that name the value that they are gradients of. on_way: sent back through a transition.
/// seed: the 1 at the start of a backward pass. found: a gradient that a manual region returns to the user, sharded as
/// the value.
enum class cotangent : std::uint8_t { on_way, seed, found, none };
constexpr cotangent cotangent_of(const node& n) {
  if (n.operands.count != 2 || n.attributes.count > 1 || !n.in_gradient) return cotangent::none;
  return n.attributes.empty() ? cotangent::on_way : static_cast<cotangent>(n.attributes[0]);
}

/// A change of the state along axes: an operator without arithmetic, whose communication is a row of the table of
/// transitions.
///
/// **Shapes.** Global shapes do not change. In the local view, see change_local_shape. **Splits.** The change states
/// the split before and after it; the other splits stay.
struct transition_op : without_exchange, same_dims, without_steps {
  static constexpr const char* name = "transition";
  static constexpr leading_dim leading{.is = leading_dim::way::states};
  static constexpr origin made = origin::renamed;
  static constexpr realisation runs = realisation::loop;
  static constexpr replication_words replication = ordinary_replication;
  /// The number of operands that are read. A gradient names the value that it is the gradient of and does not read it.
  static constexpr int reads(const node& n) { return n.operands.count > 0 ? 1 : 0; }
  static constexpr bool is_made_again(const node&) { return false; }
  static constexpr bool may_go_round_ring(const node&) { return false; }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    // the position of a device, and a 1, have no gradient
    if (n.operands.count == 0 || cotangent_of(n) == cotangent::seed) return;
    if (cotangent_of(n) == cotangent::found) b.send(0, b.dy().id());
    else if (state_change::is_local(n)) send_locally(b, n);
    else b.send(0, add_cotangent(b.program(), b.dy().id(), n.operands[0], n.at));
  }
  /// In the local view, the gradient takes the dual of the transition's row, with the same dims.
  template <class Builder>
  static constexpr void send_locally(Builder& b, const node& n) {
    const state_change c = state_change::of(n);
    graph& g = b.program();
    const int row = c.row();
    if (row < 0 || !is_of_sums(c.from) || !is_of_sums(c.to)) {
      g.fail(n.at, name_of(c.by), mistake::no_derivative,
             text("from ") << short_text(c.from) << " to " << short_text(c.to)
                           << " has no gradient; write stop_gradient around its operand or its result");
      return;
    }
    state_change back{c.by, c.axes, dual(c.to), dual(c.from)};
    int dy = b.dy().id();
    const int inverse = transitions[row].inverse;
    if (inverse >= 0) back.by = transitions[inverse].by;
    // I -> V or P, no communication: the incoming gradients are partial values, and their sum is the gradient
    if (inverse < 0) {
      if (back.from.is != state::partial)
        dy = add_transition(g, dy, {transition_kind::reinterpret, c.axes, back.from, partial_by(monoid::add)}, true, n.at);
      back = {transition_kind::all_reduce, c.axes, partial_by(monoid::add), dual(c.from)};
    }
    const int sent = add_transition(g, dy, back, true, n.at, device_shift::of(n).inverse());
    // A value that was read as partial may have varied, so its gradient is typed as varying too. Otherwise partial
    // values of the gradient would count as equal data.
    if (sent >= 0 && c.from.is == state::partial) g.nodes[static_cast<std::size_t>(sent)].operands.push_back(n.operands[0]);
    b.send(0, sent);
  }
};

constexpr int add_transition(graph& g, int operand, const state_change& change, bool is_local, location at,
                             const device_shift& shift) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  node n = source(code_of<transition_op>, x.type, x.shape, at);
  n.operands.push_back(operand);
  change.keep(n);
  if (shift.is != device_shift::kind::none) shift.keep(n);
  if (is_local) change_local_shape(change, g.mesh->shape.size_of(change.axes), n.shape);
  return g.add_sized(n);
}

/// The state that a reshard requests, on the axes that it names and on those that shard the value now. The other axes
/// stay unchanged.
struct requested_state {
  sharding layout;
  axis_mask invariant = 0;
  bool has_splits = false;  // if false, axes that shard the value continue to do so
  // the state of an operator's result: a partial sum may be reduced and a value sliced, but nothing else is sent
  bool is_out = false;

  constexpr void keep(node& n) const {
    n.annotation = layout;
    add_attributes(n, invariant, has_splits, is_out);
  }
  static constexpr bool is_one(const node& n) { return n.attributes.count == 3; }
  static constexpr requested_state of(const node& n) {
    return {n.annotation.layout, static_cast<axis_mask>(n.attributes[0]), n.attributes[1] != 0, n.attributes[2] != 0};
  }
};
constexpr int add_requested_state(graph& g, int operand, const requested_state& requested, location at) {
  if (operand < 0) return -1;
  node n = source(code_of<transition_op>, g.nodes[static_cast<std::size_t>(operand)].type,
                  g.nodes[static_cast<std::size_t>(operand)].shape, at);
  n.operands.push_back(operand);
  n.annotated = true;
  requested.keep(n);
  return g.add(n);
}
/// Adds `dy` in the dual state of `x`, if `dy` is the gradient of `x`: the backward pass of each transition to the
/// state of `dy`.
constexpr int add_cotangent(graph& g, int dy, int x, location at) {
  if (dy < 0 || x < 0) return -1;
  node n =
      source(code_of<transition_op>, g.nodes[static_cast<std::size_t>(dy)].type, g.nodes[static_cast<std::size_t>(dy)].shape, at);
  n.operands.push_back(dy);
  n.operands.push_back(x);
  return g.add(n);
}

/// Adds a gradient node of another kind: the 1 at the start of a backward pass from a loss `x`, or a found gradient of
/// `x`.
constexpr int add_cotangent(graph& g, int dy, int x, location at, cotangent is) {
  const int id = add_cotangent(g, dy, x, at);
  if (id < 0) return id;
  add_attributes(g.nodes[static_cast<std::size_t>(id)], is);
  g.nodes[static_cast<std::size_t>(id)].in_gradient = true;
  return id;
}

/// A step of a transition or reshard that a program writes. After the types are found, the steps replace the attributes
/// of the node.
struct written_step {
  device_action what = device_action::nothing;
  axis_mask axes = 0;
  bool is_found = false;    // the planner found the step: the node's layout is the layout after the step
  bool is_forced = false;   // a user of the value does not support the split of the value
  bool is_reshard = false;  // the whole path of a reshard to the node's layout, which the planner searches

  static constexpr written_step of_reshard(axis_mask changed) { return {device_action::nothing, changed, false, false, true}; }
  constexpr void keep(node& n) const {
    add_attributes(n, static_cast<int>(what) + 16 * std::int64_t{axes} +
                          found_bit * ((is_found ? 1 : 0) + (is_forced ? 2 : 0) + (is_reshard ? 4 : 0)));
  }
  static constexpr int count_of(const node& n) { return n.attributes.count; }
  static constexpr written_step of(const node& n, int k) {
    const std::int64_t a = n.attributes[k];
    return {static_cast<device_action>(a % 16), static_cast<axis_mask>(a % found_bit / 16), (a / found_bit & 1) != 0,
            (a / found_bit & 2) != 0, (a / found_bit & 4) != 0};
  }

 private:
  static constexpr std::int64_t found_bit = std::int64_t{1} << 40;
};

/// Adds the result of a function with a known class only. Nothing is known about the correspondence of its dims.
constexpr int add_opaque(graph& g, dtype type, const extents& shape, span<const int> operands, const operator_class& c,
                         location at);

/// The result of a function with a known class, in programs that state their types (dynamic/strict_program.hpp). It has
/// no steps.
///
/// **Shapes.** Any. **Splits.** A selection may be split along every dim. Otherwise all dims are whole.
struct opaque_op : plain_operator, without_movements, reads_shards, without_arithmetic, outside_of_loops, dims_by_number {
  static constexpr const char* name = "opaque";
  static constexpr leading_dim leading{.is = leading_dim::way::refused};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  static constexpr operator_class meets(const node& n, monoid kind) {
    const operator_class is = class_of(n);
    return {kind == monoid::add || is_choice(n) ? is.takes : partial_class::none, is.selectors};
  }
  static constexpr void keep(node& n, const operator_class& c) { add_attributes(n, c.takes, c.selectors); }
  static constexpr operator_class class_of(const node& n) {
    return {static_cast<partial_class>(n.attributes[0]), static_cast<std::uint32_t>(n.attributes[1])};
  }
  static constexpr bool is_choice(const node& n) { return n.attributes.count > 2; }
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    if (is_choice(n)) {
      uniform_rule(n.shape, rule);
      const tensor_map dims = rule.maps[0];
      rule.uniform = false;
      rule.maps[0] = {};
      for (int k = 0; k < n.operands.count; ++k) rule.maps.push_back(dims);
      return;
    }
    for (int k = 0; k <= n.operands.count; ++k) {
      const extents& shape = k < n.operands.count ? operand_of(g, n, k).shape : n.shape;
      tensor_map map;
      for (int d = 0; d < shape.count; ++d) {
        map.begin_dim();
        if (rule.factors.count < 2 * max_rank) map.add_factor(rule.add_factor(shape[d], factor_kind::whole));
      }
      rule.maps.push_back(map);
    }
  }
  static constexpr void gradient(gradient_builder&, const node&) {}
  static constexpr void lower(lowering&, const instruction&) {}
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

constexpr int add_opaque(graph& g, dtype type, const extents& shape, span<const int> operands, const operator_class& c,
                         location at) {
  node n = source(code_of<opaque_op>, type, shape, at);
  for (const int o : operands) {
    if (o < 0) return -1;
    n.operands.push_back(o);
  }
  opaque_op::keep(n, c);
  return g.add_sized(n);
}

}  // namespace gspmd::detail
