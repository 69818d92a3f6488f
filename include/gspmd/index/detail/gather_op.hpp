// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/element_bits.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/index/detail/indexing.hpp"
#include "gspmd/index/detail/scatter_op.hpp"

namespace gspmd::detail {

/// Adds the slices of `table` at the positions in `indices`. With out_of_range::fill, `fill` replaces elements outside
/// of the table.
constexpr int add_gather(graph& g, int table, int indices, const index_dims& dims, span<const std::int64_t> slice_sizes,
                         out_of_range beyond, const written_number& fill, location at);

/// Slices of a table at positions given by indices. Rule `[v]d,bs->bsd`.
///
/// **Shapes.** table [v, d], indices [b, s] -> [b, s, d]. **Splits.** If v is split, each device reads the slices in
/// its part of the table and zeros otherwise, so the result is partial (GSPMD 3.2: a one-hot einsum without the one-hot
/// tensor). The dims of whole slices and of the indices are parallel.
struct gather_op : indexing_operator {
  static constexpr const char* name = "gather";
  static constexpr leading_dim leading{.is = leading_dim::way::indexed, .first = 1, .step = -1};
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const auto maps = index_rule(indexing::of(n, n.shape.count), operand_of(g, n, 0).shape, n.shape, operand_of(g, n, 1).shape,
                                 {factor_kind::parallel, factor_kind::parallel}, rule);
    rule.maps.push_back(maps.table);
    rule.maps.push_back(maps.indices);
    rule.maps.push_back(maps.slices);
    rule.reduced_by = n.type == dtype::pred ? monoid::or_ : monoid::add;
  }
  /// Linear in the table, unless `fill` adds another number outside of the table.
  static constexpr operator_class meets(const node& n, monoid kind) {
    const bool fills = indexing::beyond_of(n) == out_of_range::fill;
    const bool is_linear = !fills || (kind == monoid::add && n.real == 0 && n.integer == 0);
    return {is_linear ? partial_class::all : partial_class::affine, 2};
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const node table = b.at(n.operands[0]);
    if (is_floating(table.type))
      b.send(0, add_scatter_like(b.program(), n, n.operands[1], b.dy().id(), table.shape, monoid::add, n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    indexed_access a = access_of(l, indexing::of(n, n.shape.count), op.operands[0], op.result, op.operands[1]);
    a.fill = bits_of(n.type, n.real, n.integer);
    a.nothing = is_floating(n.type) ? bits_of(n.type, -0.0, 0) : 0;  // 0.0 would turn -0.0 into 0.0
    note_indexed(l, a, op.operands[0], op.result, add_step<kernels::gather>(l, op, a, l.all_operands(op), {op.result}));
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) { describe_mode(t, plan, step); }
};

constexpr int add_gather(graph& g, int table, int indices, const index_dims& dims, span<const std::int64_t> slice_sizes,
                         out_of_range beyond, const written_number& fill, location at) {
  if (table < 0 || indices < 0 || !g.may_read({table, indices}, at, gather_words.op)) return -1;
  const one_call call(&g, gather_words.op, {table, indices});
  indices = as_index(g, indices, at);
  const node from = g.nodes[static_cast<std::size_t>(table)], index = g.nodes[static_cast<std::size_t>(indices)];
  index_checker check(g, gather_words, at);
  if (slice_sizes.size() != static_cast<std::size_t>(from.shape.count)) {
    check.fail(mistake::rank, text("slice_sizes has ")
                                  << static_cast<std::int64_t>(slice_sizes.size()) << " numbers for the dims of "
                                  << shape_text(from.shape) << "; there is one for each dim");
    return -1;
  }
  if (beyond == out_of_range::fill && !fill.fills(from.type)) {
    check.fail(mistake::number, number_problem(fill, from.type));
    return -1;
  }
  extents slice;
  for (const auto e : slice_sizes) slice.push_back(e);
  const bool has_vector = dims.vector_dim >= 0 && dims.vector_dim < index.shape.count;
  const int rank = index.shape.count - (has_vector ? 1 : 0) + static_cast<int>(dims.window.size());
  if (rank > max_rank) {
    check.fail(mistake::rank, text("the result has ") << rank << " dims; a tensor has at most 32");
    return -1;
  }
  indexing ix;
  if (!check.read(dims, from.shape, index, slice, rank, beyond, ix)) return -1;
  node n = source(code_of<gather_op>, from.type, {}, at);
  for (int d = 0; d < rank; ++d) {
    std::int64_t extent = 0;
    if (ix.lookup[d] >= 0) extent = index.shape[ix.lookup[d]];
    else
      for (const auto& t : ix.table)
        if (t.along == d) extent = t.slice;
    n.shape.push_back(extent);
  }
  n.operands.push_back(table);
  n.operands.push_back(indices);
  if (beyond == out_of_range::fill) {
    n.real = fill.real;
    n.integer = fill.integer;
  }
  ix.keep(n);
  return g.add_sized(n);
}

constexpr int add_gather_like(graph& g, const node& like, int table, int indices, const extents& shape, location at) {
  if (table < 0 || indices < 0) return -1;
  node n = source(code_of<gather_op>, g.nodes[static_cast<std::size_t>(table)].type, shape, at);
  n.operands.push_back(table);
  n.operands.push_back(indices);
  n.attributes = like.attributes;
  return g.add_sized(n);
}

}  // namespace gspmd::detail
