// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/ops/registry.hpp"

namespace gspmd::detail {

/// Removes movements that only renumber the indices of a constant, an iota or a broadcast. Loops then read the elements
/// in place, and the operand of the movement is not materialised. A reduction of a reshape reads the reshape's operand
/// if it keeps only whole dims.
///
///   transpose(iota({4, 6}, 0), {1, 0})               iota({6, 4}, 1)
///   reshape(broadcast(x, {4, 6}, {0}), {4, 2, 3})    broadcast(x, {4, 2, 3}, {0})
///   slice(constant(2, {6}), {1}, {4})                constant(2, {3})
///   sum(reshape(x, {4, 6}), 1)                       sum(x, {1, 2}) for x of shape {4, 2, 3}
///
/// An annotated operand stays, because the user has chosen its sharding. Programs that write their communication are
/// not changed, because each of their operators has a type.
class in_place_reader {
 public:
  constexpr explicit in_place_reader(graph& g) : g_(g) {}

  /// Visits the nodes, operands first, so that a chain of movements becomes one node. Returns true if any node changes.
  constexpr bool run() {
    bool any = false;
    for (auto& n : g_.nodes) {
      if (n.operands.count != 1 || n.results != 1) continue;
      const int operand = n.operands[0];
      const node& from = g_.nodes[operand];
      if (from.annotated || from.forbid_reshard || from.keep_split || from.local_axes != n.local_axes) continue;
      const bool is_renamed = facts_of(from.op).runs == realisation::strides && find_places(n, from) && rename(n, from);
      if (!is_renamed && !reduce_operand(n, from)) continue;
      any = true;
      g_.composed.push_back({from.tag, n.tag, from.type, from.shape});
      for (const auto& also : g_.also_tagged)
        if (also.node == operand) g_.composed.push_back({also.tag, n.tag, from.type, from.shape});
    }
    return any;
  }

 private:
  /// The dim of the result with the same indices, by dim of the operand; -1 if the dim is joined or divided.
  using places = inline_vec<std::int8_t, max_rank>;

  /// Finds the places of the dims of `from` in the result of the movement `n`. Returns false if `n` is another
  /// operator, or has elements that `from` lacks.
  constexpr bool find_places(const node& n, const node& from) {
    if (elements(n.shape) == 0) return false;
    places_.clear();
    moved_ = 0;
    for (int d = 0; d < from.shape.count; ++d) places_.push_back(static_cast<std::int8_t>(d));
    if (n.op == code_of<reshape_op>) {
      find_places(from.shape, n.shape);
    } else if (is_transpose(n)) {
      for (int d = 0; d < n.attributes.count; ++d) places_[attribute_dim(n, d)] = static_cast<std::int8_t>(d);
    } else if (facts_of(n.op).composes) {
      const index_map map = facts_of(n.op).map(g_, n, 0);
      for (const auto& d : map.dims) {
        const auto first = d.from_first - d.from_step * d.to_first, last = first + d.from_step * (n.shape[d.dim] - 1);
        const auto most = from.shape[d.dim] - 1;
        const bool is_inside = first >= 0 && first <= most && last >= 0 && last <= most;
        if (d.from_step == 0 || d.to_step != 1 || !(is_inside || d.beyond != continuation::none)) return false;
        moved_ |= dim_bit(d.dim);
      }
    } else {
      return false;
    }
    return true;
  }
  /// [4,6] -> [4,2,3]: 0, -1      [4,6] -> [1,4,1,6]: 1, 3      [2,3,5] -> [6,5]: -1, -1, 1
  constexpr void find_places(const extents& in, const extents& out) {
    std::int64_t before = 1, out_before = 1;
    for (int i = 0, j = 0; i < in.count;) {
      const bool is_at_one_element = before == out_before && j < out.count;
      if (is_at_one_element && in[i] != out[j] && out[j] == 1) {
        ++j;
      } else if (is_at_one_element && in[i] == out[j]) {
        places_[i] = static_cast<std::int8_t>(j++);
        before *= in[i++];
        out_before = before;
      } else if (before <= out_before || j == out.count) {
        places_[i] = -1;
        before *= in[i++];
      } else {
        out_before *= out[j++];
      }
    }
  }

  /// Turns `n` into an operator like `from`, if such an operator can have the elements of `n`.
  constexpr bool rename(node& n, const node& from) const {
    const node* const operand = from.operands.empty() ? nullptr : &g_.nodes[from.operands[0]];
    const node& like = operand != nullptr && operand->op == opcode::constant && !operand->annotated ? *operand : from;
    auto attributes = like.attributes;
    for (int k = 0; k < attributes.count; ++k) {
      const int dim = attribute_dim(like, k), place = places_[dim];
      const bool is_repeated = operand != nullptr && operand->shape[k] == 1;
      if (place < 0 || (k > 0 && place < attributes[k - 1]) || (!is_repeated && (moved_ & dim_bit(dim)) != 0)) return false;
      attributes[k] = place;
    }
    n.op = like.op;
    n.operands = like.operands;
    n.attributes = attributes;
    n.real = like.real;
    n.integer = like.integer;
    n.function = like.function;
    n.local = like.local;
    n.allow_replication = n.allow_replication || from.allow_replication;
    return true;
  }
  /// Makes the reduction `n` read the operand of the reshape `from`, if each dim that `n` keeps is a dim of that
  /// operand.
  constexpr bool reduce_operand(node& n, const node& from) {
    if (!(n.op == code_of<reduce_op>) || !(from.op == code_of<reshape_op>) || elements(from.shape) == 0) return false;
    const node& x = g_.nodes[from.operands[0]];
    if (x.local_axes != n.local_axes) return false;
    dim_mask kept = dim_bit(from.shape.count) - 1, found = 0;
    for (int k = 0; k < n.attributes.count; ++k) kept &= ~dim_bit(attribute_dim(n, k));
    places_ = places(x.shape.count, -1);
    find_places(x.shape, from.shape);
    for (const auto place : places_)
      if (place >= 0) found |= dim_bit(place) & kept;
    if (found != kept) return false;
    n.operands = from.operands;
    n.attributes.clear();
    for (int d = 0; d < places_.count; ++d)
      if (places_[d] < 0 || (dim_bit(places_[d]) & kept) == 0) n.attributes.push_back(d);
    return true;
  }

  graph& g_;
  places places_;
  dim_mask moved_ = 0;  // the dims along which elements have other indices
};

}  // namespace gspmd::detail
