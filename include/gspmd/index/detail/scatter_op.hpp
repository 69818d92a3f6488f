// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/index/detail/indexing.hpp"

namespace gspmd::detail {

/// Finds the slices that a scatter of `updates` writes: their extents by dim of the table. Records the mistake if they
/// do not fit.
constexpr bool read_updates(index_checker& check, const index_dims& dims, const extents& table, const node& indices,
                            const node& updates, out_of_range beyond, indexing& ix) {
  extents slice;
  dim_mask one = 0;
  for (const auto& list : {dims.collapsed, dims.table_batch})
    for (const auto d : list)
      if (d >= 0 && d < table.count) one |= dim_bit(static_cast<int>(d));
  std::size_t next = 0;
  for (int d = 0; d < table.count; ++d) {
    if ((one & dim_bit(d)) != 0 || next >= dims.window.size()) {
      slice.push_back(1);
      continue;
    }
    const auto w = dims.window[next++];
    slice.push_back(w >= 0 && w < updates.shape.count ? updates.shape[static_cast<int>(w)] : 1);
  }
  const bool has_vector = dims.vector_dim >= 0 && dims.vector_dim < indices.shape.count;
  const int rank = indices.shape.count - (has_vector ? 1 : 0) + static_cast<int>(dims.window.size());
  if (updates.shape.count != rank)
    return check.fail(mistake::rank, text("the updates ")
                                         << shape_text(updates.shape) << " have rank " << updates.shape.count << "; the indices "
                                         << shape_text(indices.shape) << " and update_window_dims ask for " << rank);
  if (!check.read(dims, table, indices, slice, rank, beyond, ix)) return false;
  for (int d = 0; d < rank; ++d)
    if (ix.lookup[d] >= 0 && updates.shape[d] != indices.shape[ix.lookup[d]])
      return check.fail(mistake::extent, text("dim ")
                                             << d << " of the updates " << shape_text(updates.shape) << " is dim " << ix.lookup[d]
                                             << " of the indices " << shape_text(indices.shape) << "; they have one extent");
  return true;
}

/// Adds a tensor of `shape` with the monoid's identity, and each slice of `updates` combined into it at its indices.
constexpr int add_scatter(graph& g, int indices, int updates, const extents& shape, const index_dims& dims, monoid kind,
                          out_of_range beyond, location at);
/// Adds `table` with each slice of `updates` written at its indices. If several slices have one position, the last one
/// is kept.
constexpr int add_scatter_set(graph& g, int table, int indices, int updates, const index_dims& dims, out_of_range beyond,
                              location at);

/// Adds a scatter with the dimension numbers of another gather or scatter, `like`, on the same table and slices of the
/// same kind.
constexpr int add_scatter_like(graph& g, const node& like, int indices, int updates, const extents& shape, monoid kind,
                               location at);
constexpr int add_gather_like(graph& g, const node& like, int table, int indices, const extents& shape, location at);
constexpr int add_scatter_set_like(graph& g, const node& like, int table, int indices, int updates, location at);

/// Returns the operator that combines two elements.
constexpr operator_code operator_of(monoid kind) {
  switch (kind) {
    case monoid::add: return code_of<add_op>;
    case monoid::multiply: return code_of<multiply_op>;
    case monoid::max: return code_of<max_op>;
    case monoid::min: return code_of<min_op>;
    case monoid::and_: return code_of<and_op>;
    case monoid::or_: break;
  }
  return code_of<or_op>;
}

/// Combines slices into a tensor at positions given by indices. Rule `bs,bsd->[v]d`.
///
/// **Shapes.** indices [b, s], updates [b, s, d] -> [v, d]. **Splits.** If v is split, each device writes the slices in
/// its part. A split of the dims of the updates leaves the result partial with the monoid.
struct scatter_op : indexing_operator {
  static constexpr const char* name = "scatter";
  static constexpr leading_dim leading{.is = leading_dim::way::indexed, .first = 0, .step = 1};
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const extents& slices = operand_of(g, n, 1).shape;
    const auto maps = index_rule(indexing::of(n, slices.count), n.shape, slices, operand_of(g, n, 0).shape,
                                 {factor_kind::reduction, factor_kind::reduction}, rule);
    rule.maps.push_back(maps.indices);
    rule.maps.push_back(maps.slices);
    rule.maps.push_back(maps.table);
    rule.reduced_by = n.reduced_by;
  }
  static constexpr operator_class meets(const node& n, monoid kind) {
    return {kind == n.reduced_by ? partial_class::all : partial_class::none, 1};
  }
  /// All updates that are equal to the maximum share its gradient evenly, as in a reduction.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const node updates = b.at(n.operands[1]);
    if (!is_floating(updates.type)) return;
    const auto taken = [&](auto t) {
      return b.as_term(add_gather_like(b.program(), n, t.id(), n.operands[0], updates.shape, n.at));
    };
    const auto y = b.y(), dy = b.dy(), u = b.in(1);
    if (n.reduced_by == monoid::add) {
      b.send(1, taken(dy));
    } else if (n.reduced_by == monoid::multiply) {
      b.send(1, taken(dy * y) / u);
    } else {
      const auto is_equal = y.of(code_of<compare_eq_op>, u, taken(y));
      const auto hit = b.as_term(add_elementwise(b.program(), code_of<cast_op>, {is_equal.id()}, n.at, updates.type));
      const auto hits = b.as_term(add_scatter_like(b.program(), n, n.operands[0], hit.id(), n.shape, monoid::add, n.at));
      b.send(1, hit * taken(dy / y.of(code_of<max_op>, hits, hits.number(1))));
    }
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    indexed_access a =
        access_of(l, indexing::of(n, l.value(op.operands[1]).global.count), op.result, op.operands[1], op.operands[0]);
    a.combined_by = n.reduced_by;
    // both parts, which each slice has
    if (is_complex(l.value(op.result).type)) {
      a.dims.push_back({2, 2, -1, static_cast<std::int8_t>(a.slices.count), true});
      a.lookup.push_back(-1);
      a.table.push_back(2);
      a.slices.push_back(2);
    }
    const int updates = l.widened(op, updates_of(l, op, 1, a));
    if (const auto onto = l.combined_next(op, operator_of(n.reduced_by)); onto.result >= 0) {
      a.onto = true;
      auto& s = add_step<kernels::scatter_set>(l, op, a, {onto.with, op.operands[0], updates}, {onto.result});
      s.type = part_of(s.type);
      return note_indexed(l, a, op.result, op.operands[1], s);
    }
    const int to = l.wide_result(op.result);
    auto& s = add_step<kernels::scatter>(l, op, a, {op.operands[0], updates}, {to});
    s.type = part_of(s.type);
    note_indexed(l, a, op.result, op.operands[1], s);
    l.narrowed(op, to, op.result, has_ends(a.combined_by));
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) { describe_mode(t, plan, step); }
};

constexpr int add_scatter_like(graph& g, const node& like, int indices, int updates, const extents& shape, monoid kind,
                               location at) {
  if (indices < 0 || updates < 0) return -1;
  node n = source(code_of<scatter_op>, g.nodes[static_cast<std::size_t>(updates)].type, shape, at);
  n.reduced_by = kind;
  n.operands.push_back(indices);
  n.operands.push_back(updates);
  n.attributes = like.attributes;
  return g.add_sized(n);
}

constexpr int add_scatter(graph& g, int indices, int updates, const extents& shape, const index_dims& dims, monoid kind,
                          out_of_range beyond, location at) {
  if (indices < 0 || updates < 0 || !g.may_read({indices, updates}, at, scatter_words.op)) return -1;
  const one_call call(&g, scatter_words.op, {indices, updates});
  indices = as_index(g, indices, at);
  const node index = g.nodes[static_cast<std::size_t>(indices)], from = g.nodes[static_cast<std::size_t>(updates)];
  index_checker check(g, scatter_words, at);
  indexing ix;
  if (!read_updates(check, dims, shape, index, from, beyond, ix)) return -1;
  if (!is_defined(kind, from.type))
    return g.fail(at, scatter_words.op, mistake::type, text("kind ") << name_of(kind) << ' ' << not_defined_for(from.type));
  node n = source(code_of<scatter_op>, from.type, shape, at);
  n.reduced_by = kind;
  n.operands.push_back(indices);
  n.operands.push_back(updates);
  ix.keep(n);
  return g.add_sized(n);
}

/// Writes slices to a table at positions given by indices. Rule `[v]d,bs,bsd->[v]d`.
///
/// **Shapes.** table [v, d], indices [b, s], updates [b, s, d] -> [v, d]. **Splits.** If v is split, each device writes
/// the slices in its part. The order of the updates matters, so the indices and the dims b and s of the updates are
/// whole.
struct scatter_set_op : indexing_operator {
  static constexpr const char* name = "scatter_set";
  static constexpr leading_dim leading{.is = leading_dim::way::indexed, .first = 1, .step = 2};
  static constexpr operator_class meets(const node&, monoid) { return {partial_class::all, 2}; }
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const extents& slices = operand_of(g, n, 2).shape;
    const auto maps = index_rule(indexing::of(n, slices.count), n.shape, slices, operand_of(g, n, 1).shape,
                                 {factor_kind::whole, factor_kind::whole}, rule);
    rule.maps.push_back(maps.table);
    rule.maps.push_back(maps.indices);
    rule.maps.push_back(maps.slices);
    rule.maps.push_back(maps.table);
  }
  /// Sends the gradients. If several updates write one element, only the last update has a gradient: the one with the
  /// largest number.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    if (!is_floating(n.type)) return;
    graph& g = b.program();
    const node updates = b.at(n.operands[2]);
    const int dy = b.dy().id();
    const int nothing = add_constant(g, n.type, updates.shape, 0, 0, n.at);
    b.send(0, add_scatter_set_like(g, n, dy, n.operands[1], nothing, n.at));
    // the number of an update, in row-major order of the indices
    int number = add_constant(g, dtype::s64, updates.shape, 0, 0, n.at);
    const indexing ix = indexing::of(n, updates.shape.count);
    bool several = false;
    for (int d = 0; d < updates.shape.count; ++d) {
      if (ix.lookup[d] < 0) continue;
      several = true;
      const int scale = add_constant(g, dtype::s64, updates.shape, 0, updates.shape[d], n.at);
      number = add_elementwise(g, code_of<multiply_op>, {number, scale}, n.at);
      number = add_elementwise(g, code_of<add_op>, {number, add_iota(g, dtype::s64, updates.shape, d, n.at)}, n.at);
    }
    const int taken = add_gather_like(g, n, dy, n.operands[1], updates.shape, n.at);
    if (!several) return b.send(2, taken);
    const int last = add_scatter_like(g, n, n.operands[1], number, n.shape, monoid::max, n.at);
    const int stays = add_elementwise(g, code_of<compare_eq_op>,
                                      {number, add_gather_like(g, n, last, n.operands[1], updates.shape, n.at)}, n.at);
    b.send(2, add_elementwise(g, code_of<where_op>, {stays, taken, nothing}, n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    auto a = access_of(l, indexing::of(n, l.value(op.operands[2]).global.count), op.result, op.operands[2], op.operands[1]);
    const int updates = updates_of(l, op, 2, a);
    note_indexed(l, a, op.result, op.operands[2],
                 add_step<kernels::scatter_set>(l, op, a, {op.operands[0], op.operands[1], updates}, {op.result}));
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) { describe_mode(t, plan, step); }
};

constexpr int add_scatter_set_like(graph& g, const node& like, int table, int indices, int updates, location at) {
  if (table < 0 || indices < 0 || updates < 0) return -1;
  const node& to = g.nodes[static_cast<std::size_t>(table)];
  node n = source(code_of<scatter_set_op>, to.type, to.shape, at);
  n.operands.push_back(table);
  n.operands.push_back(indices);
  n.operands.push_back(updates);
  n.attributes = like.attributes;
  return g.add(n);
}

constexpr int add_scatter_set(graph& g, int table, int indices, int updates, const index_dims& dims, out_of_range beyond,
                              location at) {
  if (table < 0 || indices < 0 || updates < 0 || !g.may_read({table, indices, updates}, at, scatter_words.op)) return -1;
  const one_call call(&g, scatter_words.op, {table, indices, updates});
  indices = as_index(g, indices, at);
  const node to = g.nodes[static_cast<std::size_t>(table)], index = g.nodes[static_cast<std::size_t>(indices)];
  const node from = g.nodes[static_cast<std::size_t>(updates)];
  index_checker check(g, scatter_words, at);
  indexing ix;
  if (!read_updates(check, dims, to.shape, index, from, beyond, ix)) return -1;
  if (to.type != from.type)
    return g.fail(
        at, scatter_words.op, mistake::type,
        text("the updates are ") << name_of(from.type) << " and the tensor is " << name_of(to.type) << "; convert one tensor");
  node n = source(code_of<scatter_set_op>, to.type, to.shape, at);
  n.operands.push_back(table);
  n.operands.push_back(indices);
  n.operands.push_back(updates);
  ix.keep(n);
  return g.add(n);
}

}  // namespace gspmd::detail

#include "gspmd/index/detail/gather_op.hpp"  // each operator is the gradient of the other
