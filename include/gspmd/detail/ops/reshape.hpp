// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <numeric>

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"

namespace gspmd::detail {

/// Returns the shape with the extent -1 replaced by the number of elements that the other extents leave. If no extent
/// fits, or several extents are -1, returns the shape unchanged, and add_reshape rejects it.
///   [64,32]: {8,-1} -> {8,256}      {-1} -> {2048}      {7,-1}, {-1,-1}: as they are
constexpr extents inferred_shape(const extents& operand, extents shape) {
  int open = -1;
  std::int64_t others = 1;
  for (int d = 0; d < shape.count; ++d) {
    if (shape[d] == -1 && open < 0) open = d;
    else if (shape[d] <= 0 || others > std::numeric_limits<std::int64_t>::max() / shape[d]) return shape;
    else others *= shape[d];
  }
  if (open >= 0 && elements(operand) % others == 0) shape[open] = elements(operand) / others;
  return shape;
}

/// Adds a reshape: the same elements in row-major order with another shape.
constexpr int add_reshape(graph& g, int operand, const extents& shape, location at);

/// The same elements in row-major order with another shape.
///
/// **Shapes.** [a b] -> [a, b]. **Splits.** Shards are reshaped in place: a dim is a product of factors, and a split of
/// the dim splits its factors, major to minor. If the splits of both shapes do not split common factors evenly, a
/// movement exchanges elements across the boundaries of shards (GSPMD 4.3).
struct reshape_op : without_exchange, reads_shards, without_arithmetic, outside_of_loops, dims_by_number, names_no_dims {
  static constexpr const char* name = "reshape";
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::alias;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  static constexpr bool composes = false;
  static constexpr replication_words replication = ordinary_replication;

  /// Rule `(ab)->ab`. The loop walks both shapes, and closes a block where the products of the extents are equal.
  ///   [6] -> [2,3]: (ab)->ab      [2,6] -> [4,3]: a(bc)->(ab)c      [2,3] -> [3,2]: no common factor, gathered
  /// If one side of a block has a single dim (extents of 1 do not count), the dims of the other side are its factors.
  /// Otherwise both sides share factors, major to minor: the greatest common divisors of the remaining extents. After
  /// the first dims with a remainder on both sides, no further factors are common.
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const extents& in = g.nodes[static_cast<std::size_t>(n.operands[0])].shape;
    const extents& out = n.shape;
    if (in == out) return uniform_rule(out, rule);
    tensor_map operand;
    tensor_map result;
    int i = 0;
    int j = 0;
    const auto whole_dims = [&rule](const extents& shape, int begin, int end, tensor_map& map, factor_kind kind) {
      for (int d = begin; d < end; ++d) {
        map.begin_dim();
        if (shape[d] != 1) map.add_factor(rule.add_factor(shape[d], kind));
      }
    };
    const auto from_factors = [](const extents& shape, int begin, int end, tensor_map& map, int first, int last) {
      for (int d = begin; d < end; ++d) {
        map.begin_dim();
        if (shape[d] != 1)
          for (int f = first; f < last; ++f) map.add_factor(f);
      }
    };
    while (i < in.count || j < out.count) {
      // one dim: a device has its only index or no index
      if (i < in.count && j < out.count && in[i] == 1 && out[j] == 1) {
        const int f = rule.add_factor(1);
        operand.begin_dim();
        operand.add_factor(f);
        result.begin_dim();
        result.add_factor(f);
        ++i;
        ++j;
        continue;
      }
      const int in_begin = i;
      const int out_begin = j;
      std::int64_t in_size = 1;
      std::int64_t out_size = 1;
      do {  // with an extent of 0, the products are equal only at the end
        if (i < in.count && (in_size <= out_size || j == out.count)) in_size *= in[i++];
        else out_size *= out[j++];
      } while ((in_size != out_size || in_size == 0) && (i < in.count || j < out.count));
      int in_long = 0;
      int out_long = 0;
      for (int d = in_begin; d < i; ++d) in_long += in[d] != 1 ? 1 : 0;
      for (int d = out_begin; d < j; ++d) out_long += out[d] != 1 ? 1 : 0;
      const int first = rule.factors.count;
      if (out_long <= 1) {
        whole_dims(in, in_begin, i, operand, factor_kind::parallel);
        from_factors(out, out_begin, j, result, first, rule.factors.count);
      } else if (in_long <= 1) {
        whole_dims(out, out_begin, j, result, factor_kind::parallel);
        from_factors(in, in_begin, i, operand, first, rule.factors.count);
      } else if (in_size == 0) {
        whole_dims(in, in_begin, i, operand, factor_kind::whole);
        whole_dims(out, out_begin, j, result, factor_kind::whole);
      } else {
        std::int64_t in_left = 1;  // the remainder of the dim before `a`
        std::int64_t out_left = 1;
        bool is_aligned = true;
        for (int a = in_begin, b = out_begin;;) {
          for (; in_left == 1 && a < i; ++a) operand.begin_dim(), in_left = in[a];
          for (; out_left == 1 && b < j; ++b) result.begin_dim(), out_left = out[b];
          if (in_left == 1 && out_left == 1) break;
          if (is_aligned) {
            const auto shared = std::gcd(in_left, out_left);
            // There is always room for one factor for each remaining dim. A remainder on both sides needs one more
            // factor.
            const int needed = in.count - a + out.count - b + 3;
            if (shared > 1 && (shared == in_left || shared == out_left || rule.factors.count + needed <= rule.factors.capacity)) {
              const int f = rule.add_factor(shared);
              operand.add_factor(f);
              result.add_factor(f);
              in_left /= shared;
              out_left /= shared;
            }
            is_aligned = in_left == 1 || out_left == 1;
            if (is_aligned) continue;
          }
          if (in_left != 1) operand.add_factor(rule.add_factor(in_left, factor_kind::whole));
          if (out_left != 1) result.add_factor(rule.add_factor(out_left, factor_kind::whole));
          in_left = out_left = 1;
        }
      }
    }
    rule.maps.push_back(operand);
    rule.maps.push_back(result);
    rule.is_moved_unevenly = true;
  }
  static constexpr operator_class meets(const node&, monoid) { return {partial_class::all}; }
  static constexpr int movements(const node&) { return 0; }
  static constexpr index_map map(const graph&, const node&, int) {
    index_map map;
    map.reshapes = true;
    return map;
  }
  static constexpr int reads(const node& n) { return n.operands.count; }
  static constexpr bool is_made_again(const node&) { return false; }
  static constexpr bool may_go_round_ring(const node&) { return false; }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const extents shape = operand_of(b.program(), n, 0).shape;
    b.send(0, add_reshape(b.program(), b.dy().id(), shape, n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    l.move(op);
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

constexpr int add_reshape(graph& g, int operand, const extents& shape, location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  for (const auto e : shape)
    if (e < 0)
      return g.fail(at, "reshape", mistake::element_count,
                    text("no extent can replace the negative extent in ")
                        << shape_text(shape) << ": the operand " << shape_text(x.shape) << " has " << elements(x.shape)
                        << " elements; one extent may be -1, and the others must divide them");
  node n;
  n.op = code_of<reshape_op>;
  n.type = x.type;
  n.shape = shape;
  n.at = at;
  n.operands.push_back(operand);
  if (!g.is_countable(n, "reshape")) return -1;
  if (elements(x.shape) != elements(shape))
    return g.fail(at, "reshape", mistake::element_count,
                  text("the operand ") << shape_text(x.shape) << " has " << elements(x.shape) << " elements, the result "
                                       << shape_text(shape) << " has " << elements(shape));
  return g.add(n);
}

}  // namespace gspmd::detail
