// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/axis_state.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/transition.hpp"
#include "gspmd/detail/passes/typed/local_parts.hpp"

namespace gspmd::detail {

/// A mesh without the axes of which types say nothing: they have one device.
constexpr mesh_shape along_types(const mesh_shape& mesh) {
  mesh_shape typed = mesh;
  for (int a = 0; a < mesh.axis_count(); ++a)
    if ((mesh.automatic_axes & axis_bit(a)) != 0) typed.sizes[a] = 1;
  return typed;
}

/// The state of a value on every axis of the mesh.
struct value_type {
  inline_vec<axis_state, max_axes> on;
  inline_vec<axis_use, max_axes> splits;  // the axes of the global view that shard it, by dim, then major to minor
  local_parts parts;                      // of the local view: the axes whose parts of a dim devices are known to hold
  axis_mask terms = 0;    // of the local view: the axes along which it is a sum of its part of a dim (local_sums.hpp)
  bool is_known = false;  // false after a mistake: nothing is asked of it

  static constexpr value_type all(const mesh_shape& mesh, axis_state s) {
    value_type t;
    t.is_known = true;
    for (int a = 0; a < mesh.axis_count(); ++a) t.on.push_back(s);
    return t;
  }
  friend constexpr bool operator==(const value_type& a, const value_type& b) { return a.on == b.on && a.splits == b.splits; }

  constexpr void leave(int axis) {
    inline_vec<axis_use, max_axes> kept;
    for (const auto& use : splits)
      if (use.axis != axis) kept.push_back(use);
    splits = kept;
  }
  /// Sets the state on an axis of the global view; one that shards a dim is minor to those that do so already.
  constexpr void set(int axis, axis_state s) {
    leave(axis);
    on[axis] = s;
    if (s.is != state::shard) return;
    int at = 0;
    while (at < splits.count && splits[at].dim <= s.dim) ++at;
    splits.insert(at, axis_use{static_cast<std::int8_t>(axis), s.dim});
  }
  /// The rule of transitions and reshards of the global view: an axis moves only where it is the innermost of its dim (local_parts.hpp has
  /// that of the local one). Returns, of axes that are to leave their dims, one whose parts an axis that stays cuts further; -1: none.
  [[nodiscard]] constexpr int cut_further(axis_mask leaving) const {
    for (int k = 0; k + 1 < splits.count; ++k)
      if ((leaving & axis_bit(splits[k].axis)) != 0 && splits[k + 1].dim == splits[k].dim &&
          (leaving & axis_bit(splits[k + 1].axis)) == 0)
        return splits[k].axis;
    return -1;
  }
  /// The layout that devices know it by.
  [[nodiscard]] constexpr sharding layout() const {
    sharding s;
    s.splits = splits;
    for (int a = 0; a < on.count; ++a) {
      if (on[a].is != state::partial) continue;
      s.partial |= axis_bit(a);
      s.reduced_by = on[a].reduced_by;
    }
    return s;
  }
};

/// `[data, _] replica(model)`; of axes of the local view the states that they have: `data: V, model: P`.
[[gnu::cold]] constexpr text type_text(const mesh_info& mesh, const value_type& t, int rank, axis_mask local) {
  text words;
  bool is_first = true;
  const auto say_local = [&](int a) {
    words << (is_first ? "" : ", ") << axes_text(mesh, axis_bit(a)) << ": " << short_text(t.on[a]);
    is_first = false;
  };
  const bool is_all_local = t.on.count > 0 && local == axis_bit(t.on.count) - 1;
  if (!is_all_local) {
    sharding s;
    s.splits = t.splits;
    words << sharding_text(mesh, s, rank);
    is_first = false;
  }
  for (int a = 0; a < t.on.count; ++a) {
    if ((local & axis_bit(a)) != 0) {
      say_local(a);
      continue;
    }
    const auto is = t.on[a].is;
    if ((mesh.shape.automatic_axes & axis_bit(a)) != 0) continue;
    if (is == state::shard || is == state::invariant) continue;
    words << (is == state::partial    ? " partial("
              : is == state::replica  ? " replica("
              : is == state::constant ? " constant("
                                      : " varying(")
          << axes_text(mesh, axis_bit(a));
    if (is == state::partial && t.on[a].reduced_by != monoid::add) words << ": " << name_of(t.on[a].reduced_by);
    words << ')';
  }
  return words;
}

/// "`x`, then by `y`"
[[gnu::cold]] constexpr text order_text(const mesh_info& mesh, const inline_vec<std::int8_t, max_axes>& order) {
  text words;
  for (int k = 0; k < order.count; ++k) words << (k == 0 ? "`" : ", then by `") << axes_text(mesh, axis_bit(order[k])) << '`';
  return words;
}

/// A transition of a program, between two states of a value: a row of the table along some axes, and what a device sends for it.
struct typed_step {
  int node = 0;
  int row = 0;
  axis_mask axes = 0;
  axis_state from, to;
  std::int64_t sent = 0, sent_back = 0;
  bool is_sent_back = false;  // its gradient is a collective
};

}  // namespace gspmd::detail
