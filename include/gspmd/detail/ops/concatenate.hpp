// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/detail/ops/roll.hpp"
#include "gspmd/detail/ops/slice.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The tensor that the operands of a concatenation are slices of. The slices follow each other along `dim` and cover
/// the tensor once. They may begin in the middle and continue at index 0, as in concat(x[k:], x[:k]), which is a roll.
/// `of` is -1 if no such tensor exists.
///   x[3:6], x[0:3] for x of extent 6: of = x, first = 3
struct cut_tensor {
  int of = -1;
  std::int64_t first = 0;
};
constexpr cut_tensor cut_tensor_of(const graph& g, const vec<int>& operands, int dim) {
  cut_tensor cut;
  std::int64_t next = -1, total = 0, extent = 0;
  for (const int o : operands) {
    const node& n = g.nodes[static_cast<std::size_t>(o)];
    if (n.op != code_of<slice_op> || n.annotated || (cut.of >= 0 && n.operands[0] != cut.of)) return {};
    const auto maps = maps_of(n);
    if (maps.count != 1 || maps[0].dim != dim || maps[0].from_step != 1 || maps[0].to_step != 1) return {};
    if (cut.of < 0) cut = {n.operands[0], maps[0].from_first};
    else if (maps[0].from_first != next) return {};
    extent = g.nodes[static_cast<std::size_t>(cut.of)].shape[dim];
    total += n.shape[dim];
    next = maps[0].from_first + n.shape[dim];
    if (next == extent) next = 0;
  }
  return total == extent ? cut : cut_tensor{};
}

/// Adds the concatenation of the operands along `dim`. If there are more operands than an operator takes, groups of
/// them are concatenated first.
constexpr int add_concatenate(graph& g, span<const int> operands, int dim, location at);

/// The operands, one after the other along one dim.
///
/// **Shapes.** [a, c] and [b, c] -> [a + b, c]. **Splits.** Every dim may be split. A split of the joined dim is kept:
/// each operand is a movement into its range of the result. The other dims are not moved.
struct concatenate_op : plain_operator, reads_shards, without_arithmetic, outside_of_loops, dims_by_number {
  static constexpr const char* name = "concatenate";
  static constexpr leading_dim leading{.count = 1};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = true;
  static constexpr bool keeps_slices = true;

  static constexpr std::int64_t begin_of(const graph& g, const node& n, int operand) {
    std::int64_t begin = 0;
    for (int k = 0; k < operand; ++k) begin += operand_of(g, n, k).shape[attribute_dim(n, 0)];
    return begin;
  }

  static constexpr void rule(const graph& g, const node& n, op_rule& r) {
    extents least = n.shape;
    for (int k = 0; k < n.operands.count; ++k) {
      const auto extent = operand_of(g, n, k).shape[attribute_dim(n, 0)];
      if (extent < least[attribute_dim(n, 0)]) least[attribute_dim(n, 0)] = extent;
    }
    uniform_rule(least, r);
  }
  static constexpr operator_class meets(const node&, monoid) { return {partial_class::all}; }
  static constexpr bool composes = false;
  static constexpr int movements(const node& n) { return n.operands.count; }
  static constexpr index_map map(const graph& g, const node& n, int k) {
    index_map map;
    map.dims.push_back(dim_map::affine(attribute_dim(n, 0), 1, -begin_of(g, n, k), 1));
    map.outside = outside_rule::keep;
    return map;
  }
  /// Each operand receives its range of dy.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    for (int k = 0; k < n.operands.count; ++k) {
      const extents shape = operand_of(b.program(), n, k).shape;
      vec<dim_map> dims;
      dims.push_back(dim_map::affine(attribute_dim(n, 0), 1, begin_of(b.program(), n, k), 1));
      b.send(k, add_mapped(b.program(), code_of<slice_op>, b.dy().id(), shape, dims, 0, n.at));
    }
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    l.move(op);
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    if (step != nullptr) t += "(dim " + std::to_string(map_of(plan, *step).dims[0].dim) + ')';
  }
};

constexpr int add_concatenate(graph& g, span<const int> operands, int dim, location at) {
  vec<int> left;
  for (const int o : operands) {
    if (o < 0) return -1;
    left.push_back(o);
  }
  if (!g.may_read(operands, at, "concatenate")) return -1;
  if (left.empty()) return g.fail(at, "concatenate", mistake::operand_count, "joins no tensors; name at least one");
  const node first = g.nodes[static_cast<std::size_t>(left[0])];
  if (dim < 0 || dim >= first.shape.count)
    return g.fail(at, "concatenate", mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(first.shape) << "; dims count from 0");
  for (std::size_t k = 1; k < left.size(); ++k) {
    const node& x = g.nodes[static_cast<std::size_t>(left[k])];
    if (x.type != first.type)
      return g.fail(at, "concatenate", mistake::type,
                    text("joins ") << name_of(first.type) << " and, as operand " << static_cast<std::int64_t>(k) << ", "
                                   << name_of(x.type) << "; convert one operand");
    bool fits = x.shape.count == first.shape.count;
    for (int d = 0; d < first.shape.count && fits; ++d) fits = d == dim || x.shape[d] == first.shape[d];
    if (!fits)
      return g.fail(at, "concatenate", mistake::extent,
                    text("joins ") << shape_text(first.shape) << " and, as operand " << static_cast<std::int64_t>(k) << ", "
                                   << shape_text(x.shape) << " along dim " << dim << "; their other extents must be equal");
  }
  if (left.size() == 1) return add_reshape(g, left[0], first.shape, at);
  if (const auto cut = cut_tensor_of(g, left, dim); cut.of >= 0) return add_roll(g, cut.of, -cut.first, dim, at);
  while (left.size() > 1) {
    vec<int> joined;
    for (std::size_t k = 0; k < left.size();) {
      node n = source(code_of<concatenate_op>, first.type, first.shape, at);
      n.shape[dim] = 0;
      for (; k < left.size() && n.operands.count < max_map_arity; ++k) {
        n.operands.push_back(left[k]);
        n.shape[dim] = saturating_add(n.shape[dim], g.nodes[static_cast<std::size_t>(left[k])].shape[dim]);
      }
      n.attributes.push_back(dim);
      joined.push_back(n.operands.count == 1 ? n.operands[0] : g.add_sized(n));
      if (joined.back() < 0) return -1;
    }
    left = std::move(joined);
  }
  return left[0];
}

}  // namespace gspmd::detail
