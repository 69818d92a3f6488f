// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/rule.hpp"
#include "gspmd/detail/ops/modes/transition.hpp"

namespace gspmd::detail {

/// Returns an axis in `leaving` whose parts are cut further by an axis that stays in the same dim; -1 if no axis is.
/// Transitions, reshards and borders share this rule: an axis moves only if it is the innermost axis of its dim.
///
///   0 1 2 3 4 5 over x:2, y:3      gathered along y: 0 1 2 | 3 4 5
///                                  gathered along x: 0 3 | 1 4 | 2 5, which are no parts of S(0)
constexpr int cut_further(const inline_vec<axis_use, max_axes>& splits, axis_mask leaving) {
  for (int k = 0; k + 1 < splits.count; ++k)
    if ((leaving & axis_bit(splits[k].axis)) != 0 && splits[k + 1].dim == splits[k].dim &&
        (leaving & axis_bit(splits[k + 1].axis)) == 0)
      return splits[k].axis;
  return -1;
}

/// Returns the last dim of a shard that an order of axes starting at `dim` can reach. The order passes dims of one
/// element up to the dim after them. An axis may cut any of the dims in between.
///
///   a shard [1,3], dim 0 cut by x, then by y: as [1,1,3] its dim 0 is cut by both, or dim 0 by x and dim 1 by y
constexpr int end_of_dims(const extents& shape, int dim) {
  while (dim + 1 < shape.count && shape[dim] == 1) ++dim;
  return dim;
}

/// Facts about a value of the local view in addition to its states. The first fact is the axes that cut a dim into the
/// parts that devices hold, by dim, then major to minor. The second fact is the axes along which the value is a sum
/// over its part of a dim. Neither fact is a layout: the value may vary along these axes, because a varying value may
/// hold any data. But if two axes cut one dim, their order restricts transitions (cut_further), and a partial value is
/// not read as the sum (local_sums.hpp). An unknown order is not stored and not checked.
class local_parts {
  // Defined before its callers: Clang reads bodies in their order, and in a constant it calls no function that it has
  // not read yet.
  template <class Keeps>
  constexpr void keep_if(Keeps keeps) {
    inline_vec<axis_use, max_axes> kept;
    for (const auto& use : uses_)
      if (keeps(use)) kept.push_back(use);
    uses_ = kept;
  }

 public:
  axis_mask terms = 0;  // the axes along which it is a sum over its part of a dim

  /// Makes `axis` the last axis of a dim.
  constexpr void cut(int axis, int dim) {
    join(axis);
    int at = 0;
    while (at < uses_.count && uses_[at].dim <= dim) ++at;
    uses_.insert(at, axis_use{static_cast<std::int8_t>(axis), static_cast<std::int8_t>(dim)});
  }
  constexpr void join(int axis) {
    keep_if([axis](const axis_use& use) { return use.axis != axis; });
  }
  constexpr void forget_dim(int dim) {
    keep_if([dim](const axis_use& use) { return use.dim != dim; });
  }
  constexpr void keep_axes(axis_mask axes) {
    keep_if([axes](const axis_use& use) { return (axes & axis_bit(use.axis)) != 0; });
    terms &= axes;
  }
  /// Takes the parts of another value along these axes.
  constexpr void take(const local_parts& o, axis_mask axes) {
    uses_ = o.uses_;
    keep_if([axes](const axis_use& use) { return (axes & axis_bit(use.axis)) != 0; });
  }
  [[nodiscard]] constexpr bool empty() const { return uses_.empty() && terms == 0; }
  [[nodiscard]] constexpr axis_mask axes() const {
    axis_mask axes = 0;
    for (const auto& use : uses_) axes |= axis_bit(use.axis);
    return axes;
  }
  /// Returns the dim that an axis cuts; -1 if unknown.
  [[nodiscard]] constexpr int dim_of(int axis) const {
    for (const auto& use : uses_)
      if (use.axis == axis) return use.dim;
    return -1;
  }
  [[nodiscard]] constexpr axis_mask axes_of(int dim) const {
    axis_mask axes = 0;
    for (const auto& use : uses_)
      if (use.dim == dim) axes |= axis_bit(use.axis);
    return axes;
  }
  /// Returns the axes that cut a dim, major to minor.
  [[nodiscard]] constexpr inline_vec<std::int8_t, max_axes> order_of(int dim) const {
    inline_vec<std::int8_t, max_axes> order;
    for (const auto& use : uses_)
      if (use.dim == dim) order.push_back(use.axis);
    return order;
  }
  /// Returns true if the passed axes that cut the dim are its last axes, in this order.
  [[nodiscard]] constexpr bool ends_with(int dim, const inline_vec<std::int8_t, max_axes>& axes) const {
    inline_vec<std::int8_t, max_axes> named, known;
    axis_mask leaving = 0;
    for (const auto a : axes)
      if ((axes_of(dim) & axis_bit(a)) != 0) {
        leaving |= axis_bit(a);
        named.push_back(a);
      }
    for (const auto a : order_of(dim))
      if ((leaving & axis_bit(a)) != 0) known.push_back(a);
    return known == named && cut_further(uses_, leaving) < 0;
  }
  /// Updates the parts after a transition along axes of the local view. A varying value is stacked along a new dim 0,
  /// or cut along it.
  constexpr bool change(const state_change& c) {
    const bool joins =
        c.by == transition_kind::all_gather || c.by == transition_kind::all_to_all || c.by == transition_kind::convert;
    const bool cuts =
        c.by == transition_kind::reduce_scatter || c.by == transition_kind::all_to_all || c.by == transition_kind::convert;
    if (c.by != transition_kind::permute) terms &= ~c.axes;
    if (c.by == transition_kind::permute ||
        (c.by == transition_kind::reinterpret && c.to.is == state::varying && c.from.is != state::varying))
      return false;
    for (int a = 0; a < max_axes; ++a)
      if ((c.axes & axis_bit(a)) != 0) join(a);
    if (joins && c.from.is == state::varying)
      for (auto& use : uses_) ++use.dim;
    if (!cuts) return true;
    if (c.to.is == state::varying) {
      forget_dim(0);
      for (auto& use : uses_) --use.dim;
    }
    for (int a = 0; a < max_axes && c.to.is == state::shard; ++a)
      if ((c.axes & axis_bit(a)) != 0) cut(a, c.to.dim);
    return true;
  }
  /// Passes the parts of an operand on to the result of an operator. A dim whose elements do not move keeps its order.
  /// If a reshape joins or divides a dim, the result dim that begins with the same factor gets the order.
  ///
  ///   reshape of [4,6], dim 0 cut by x, to [24]      dim 0 of the result is cut by x
  constexpr void pass(const node& n, const op_rule& rule, const extents& shape, int operand, dim_mask exchanged,
                      local_parts& result) const {
    const tensor_map &from = rule.operand(operand), &to = rule.result();
    for (int d = 0; d < shape.count; ++d) {
      const auto order = order_of(d);
      int first = d;  // a dim of extent 1 has no factor; a reshape joins it with the next dim
      while (first < shape.count && from.end(first) == from.begin(first)) ++first;
      if (order.count == 0 || first == shape.count) continue;
      for (int r = 0; r < n.shape.count; ++r) {
        if (to.end(r) == to.begin(r) || to.factors[to.begin(r)] != from.factors[from.begin(first)]) continue;
        const bool is_one_factor = from.end(first) - from.begin(first) == 1 && to.end(r) - to.begin(r) == 1;
        if ((is_one_factor && n.shape[r] != shape[first]) || (exchanged & dim_bit(r)) != 0) continue;
        result.add(r, order);
      }
    }
  }
  /// Keeps the facts that are the same in both values. Returns true if this value loses a fact.
  constexpr bool keep_common(const local_parts& o, int rank) {
    bool is_less = (terms & ~o.terms) != 0;
    terms &= o.terms;
    for (int d = 0; d < rank; ++d) {
      if (order_of(d) == o.order_of(d)) continue;
      is_less = is_less || axes_of(d) != 0;
      forget_dim(d);
    }
    return is_less;
  }

 private:
  /// Adds the order of a dim. If operands disagree about a dim, the dim becomes unknown. Two dims with parts along one
  /// axis, blocks, become unknown too.
  constexpr void add(int dim, const inline_vec<std::int8_t, max_axes>& order) {
    if ((unknown_ & dim_bit(dim)) != 0 || order_of(dim) == order) return;
    bool is_new = axes_of(dim) == 0;
    for (const auto a : order)
      for (int d = 0; d < max_rank; ++d)
        if (d != dim && (axes_of(d) & axis_bit(a)) != 0) {
          unknown_ |= dim_bit(d);
          forget_dim(d);
          is_new = false;
        }
    forget_dim(dim);
    if (!is_new) unknown_ |= dim_bit(dim);
    for (int k = 0; is_new && k < order.count; ++k) cut(order[k], dim);
  }

  inline_vec<axis_use, max_axes> uses_;
  dim_mask unknown_ = 0;
};

}  // namespace gspmd::detail
