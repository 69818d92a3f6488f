// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/ops/reshape.hpp"

namespace gspmd::detail {

/// Finds a softmax in a program, also if it is written as single operators. Its gradient is p * (g - sum(p * g)). The
/// maximum that is subtracted before the exponential has no gradient.
///
///   exp(z) / spread(sum(exp(z)))         softmax
///   z - spread(log(sum(exp(z))))         log_softmax
///   z = x - spread(...)                  x receives the gradient
struct softmax_match {
  int exponential = -1;  // nodes
  int sum = -1;
  int source = -1;  // the node that receives the gradient

  [[nodiscard]] constexpr bool found() const { return source >= 0; }
};

class softmax_matcher {
 public:
  constexpr softmax_matcher(const graph& g, int node) : graph_(g), region_(at(node).region) {
    const struct node& n = at(node);
    const bool is_log = n.op == code_of<subtract_op>;
    if (!is_log && n.op != code_of<divide_op>) return;
    const int sum = spread_sum(n.operands[1], is_log);
    if (sum < 0) return;
    const int e = at(sum).operands[0];
    if (at(e).op != code_of<exp_op> || !is_here(e)) return;
    const int z = at(e).operands[0];
    if (n.operands[0] != (is_log ? z : e)) return;
    result = {e, sum, z};
    if (at(z).op == code_of<subtract_op> && is_here(z) && is_constant_along(at(z).operands[1], reduced_dims(at(sum))))
      result.source = at(z).operands[0];
  }

  softmax_match result;

 private:
  [[nodiscard]] constexpr const struct node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  /// Returns true if node `i` is in the region of the softmax. Gradients of operators of a body stay inside the body.
  [[nodiscard]] constexpr bool is_here(int i) const { return at(i).region == region_; }

  /// Returns the sum that is broadcast along its dims, or whose logarithm is broadcast, or -1.
  [[nodiscard]] constexpr int spread_sum(int i, bool is_log) const {
    const extents& shape = at(i).shape;
    dim_mask kept = dim_bit(shape.count) - 1;
    if (at(i).op == code_of<broadcast_op> && is_here(i)) {
      kept = 0;
      for (int k = 0; k < at(i).attributes.count; ++k) kept |= dim_bit(attribute_dim(at(i), k));
      i = at(i).operands[0];
    }
    if (is_log) {
      if (at(i).op != code_of<log_op> || !is_here(i)) return -1;
      i = at(i).operands[0];
    }
    const extents spread = at(i).shape;
    if (at(i).op == code_of<reshape_op> && is_here(i)) i = at(i).operands[0];
    const struct node& n = at(i);
    if (n.op != code_of<reduce_op> || n.reduced_by != monoid::add || !is_here(i) || !(at(n.operands[0]).shape == shape))
      return -1;
    const dim_mask dims = reduced_dims(n);
    const bool keeps_dims = spread.count == shape.count;
    if (!keeps_dims) return (kept ^ dims) == dim_bit(shape.count) - 1 && (kept & dims) == 0 && spread == n.shape ? i : -1;
    for (int d = 0; d < shape.count; ++d)
      if (spread[d] != ((dims & dim_bit(d)) != 0 ? 1 : shape[d])) return -1;
    return i;
  }

  [[nodiscard]] constexpr bool is_constant_along(int i, dim_mask dims) const {
    const struct node& n = at(i);
    if (n.op != code_of<broadcast_op>) return n.op == opcode::constant;
    for (int k = 0; k < n.attributes.count; ++k) {
      const int d = attribute_dim(n, k);
      if ((dims & dim_bit(d)) != 0 && at(n.operands[0]).shape[k] != 1) return false;
    }
    return true;
  }

  const graph& graph_;
  int region_;
};

}  // namespace gspmd::detail
