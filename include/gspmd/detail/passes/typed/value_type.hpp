// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "gspmd/detail/ir/automatic_axes.hpp"
#include "gspmd/detail/ir/axis_state.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/transition.hpp"
#include "gspmd/detail/passes/typed/local_parts.hpp"
#include "gspmd/detail/passes/typed/state_words.hpp"

namespace gspmd::detail {

/// Returns the mesh with one device along each automatic axis: types do not apply to automatic axes.
constexpr mesh_shape along_types(const mesh_info& mesh) {
  mesh_shape typed = mesh.shape;
  for (int a = 0; a < typed.axis_count(); ++a)
    if ((mesh.automatic_axes & axis_bit(a)) != 0) typed.sizes[a] = 1;
  return typed;
}

/// The type of a value: its layout, and facts that a plan cannot express. If an axis is in `constant`, devices hold
/// the same data with every plan, but no device has a partial value of its gradient. A plan reduces by one monoid at a
/// time, but a type can have several.
struct value_type {
  sharding layout;          // its splits are those of the global view
  axis_mask constant = 0;   // the axes along which devices hold equal data without a gradient
  local_parts parts;        // of the local view
  bool is_known = false;    // false after a mistake: it is not checked any more
  std::uint64_t kinds = 0;  // 4 bits per axis: its monoid, which can be a sum along one axis and a maximum along another

  static constexpr value_type of(const sharding& s) {
    value_type t;
    t.is_known = true;
    t.layout = s;
    for (int a = 0; a < max_axes && s.partial != 0; ++a)
      if ((s.partial & axis_bit(a)) != 0) t.kinds |= static_cast<std::uint64_t>(s.reduced_by) << (4 * a);
    return t;
  }
  static constexpr value_type all_constant(const mesh_shape& mesh) {
    value_type t = of({});
    t.constant = axis_bit(mesh.axis_count()) - 1;
    return t;
  }
  friend constexpr bool operator==(const value_type& a, const value_type& b) {
    if (!(a.layout == b.layout) || a.constant != b.constant || a.kinds != b.kinds) return false;
    for (int axis = 0; axis < max_axes && !(a.parts.empty() && b.parts.empty()); ++axis)
      if (!(a.on(axis) == b.on(axis))) return false;
    return true;
  }

  [[nodiscard]] constexpr axis_state on(int axis) const {
    const axis_mask bit = axis_bit(axis);
    if ((layout.varying & bit) != 0) return {state::varying};
    if ((layout.partial & bit) != 0) return partial_by(static_cast<monoid>(kinds >> (4 * axis) & 15U));
    if ((layout.replica & bit) != 0) return {state::replica};
    if ((constant & bit) != 0) return {state::constant};
    for (const auto& use : layout.splits)
      if (use.axis == axis) return shard_of(use.dim);
    const int dim = parts.dim_of(axis);
    return dim < 0 ? axis_state{state::invariant} : shard_of(dim);
  }
  /// Sets the state on an axis of the global view. An axis that shards a dim is minor to the axes that shard the dim
  /// already.
  constexpr void set(int axis, axis_state s) {
    inline_vec<axis_use, max_axes> kept;
    for (const auto& use : layout.splits)
      if (use.axis != axis) kept.push_back(use);
    layout.splits = kept;
    if (s.is == state::shard) layout.add_split(axis, s.dim);
    hold(axis, s);
  }
  /// Sets the state on an axis that splits no dim of the global view, or that keeps splitting its dim.
  constexpr void hold(int axis, axis_state s) {
    const axis_mask bit = axis_bit(axis);
    for (axis_mask* const axes : {&layout.varying, &layout.partial, &layout.replica, &constant}) *axes &= ~bit;
    kinds &= ~(std::uint64_t{15} << (4 * axis));
    switch (s.is) {
      case state::constant: constant |= bit; break;
      case state::replica: layout.replica |= bit; break;
      case state::invariant: parts.join(axis); break;
      case state::varying: layout.varying |= bit; break;
      case state::shard:
        if ((layout.split_axes() & bit) == 0 && parts.dim_of(axis) != s.dim) parts.cut(axis, s.dim);
        break;
      case state::partial:
        layout.partial |= bit;
        kinds |= static_cast<std::uint64_t>(s.reduced_by) << (4 * axis);
        break;
    }
    layout.reduced_by = monoid::add;
    for (int a = 0; a < max_axes && layout.partial != 0; ++a)
      if ((layout.partial & axis_bit(a)) != 0) layout.reduced_by = on(a).reduced_by;
  }
  /// Returns the request for a value of this type along these axes.
  [[nodiscard]] constexpr requested_state requested(const mesh_info& mesh, axis_mask axes) const {
    const axis_mask others = layout.split_axes() | layout.partial | layout.varying | layout.replica | mesh.automatic_axes;
    return {part_along(layout, axes), (axis_bit(mesh.shape.axis_count()) - 1) & axes & ~others, true};
  }
  /// Returns the same type, but constant along these axes.
  [[nodiscard]] constexpr value_type without(axis_mask axes) const {
    value_type t = *this;
    for (int a = 0; axes >> a != 0; ++a)
      if ((axes & axis_bit(a)) != 0) t.set(a, {state::constant});
    return t;
  }
  /// Changes the facts about the parts. A chunk of a dim that is not known any more becomes varying.
  template <class Change>
  constexpr bool change_parts(Change change) {
    const axis_mask chunks = parts.axes() & ~(layout.varying | layout.partial | layout.replica | constant);
    const bool result = change(parts);
    layout.varying |= chunks & ~parts.axes();
    return result;
  }
  /// Returns the axes along which devices hold different data, or parts.
  [[nodiscard]] constexpr axis_mask cut_axes() const {
    return layout.varying | layout.split_axes() | (parts.axes() & ~(layout.partial | layout.replica | constant));
  }
};

/// Returns, for example, `[data, _] replica(model)`. For axes of the local view it returns their states: `data: V,
/// model: P`.
[[gnu::cold]] constexpr text type_text(const mesh_info& mesh, const value_type& t, int rank, axis_mask local) {
  text words;
  bool is_first = true;
  const auto say_local = [&](int a) {
    words << (is_first ? "" : ", ") << axes_text(mesh, axis_bit(a)) << ": " << short_text(t.on(a));
    is_first = false;
  };
  const bool is_all_local = local == axis_bit(mesh.shape.axis_count()) - 1;
  if (!is_all_local) {
    sharding s;
    s.splits = t.layout.splits;
    words << sharding_text(mesh, s, rank);
    is_first = false;
  }
  for (int a = 0; a < mesh.shape.axis_count(); ++a) {
    if ((local & axis_bit(a)) != 0) {
      say_local(a);
      continue;
    }
    const auto is = t.on(a).is;
    if ((mesh.automatic_axes & axis_bit(a)) != 0) continue;
    if (is == state::shard || is == state::invariant) continue;
    words << (is == state::partial    ? " partial("
              : is == state::replica  ? " replica("
              : is == state::constant ? " constant("
                                      : " varying(")
          << axes_text(mesh, axis_bit(a));
    if (is == state::partial && t.on(a).reduced_by != monoid::add) words << ": " << name_of(t.on(a).reduced_by);
    words << ')';
  }
  return words;
}

/// Returns, for example, "`x`, then by `y`".
[[gnu::cold]] constexpr text order_text(const mesh_info& mesh, const inline_vec<std::int8_t, max_axes>& order) {
  text words;
  for (int k = 0; k < order.count; ++k) words << (k == 0 ? "`" : ", then by `") << axes_text(mesh, axis_bit(order[k])) << '`';
  return words;
}

/// A step that a program specifies: a transition along some axes, or one step of a reshard, with the bytes that a
/// device sends.
struct typed_step {
  int node = 0;
  axis_mask axes = 0;
  std::string_view sends{}, sends_back{};  // the collective of the step, and of its gradient; empty: nothing is sent
  std::int64_t sent = 0, sent_back = 0;    // bytes
  device_action does = device_action::nothing;
  bool is_planned = false;   // a plan has a step for it
  bool is_searched = false;  // a step of a reshard: plans search its path again
};

}  // namespace gspmd::detail
