// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/sources.hpp"

/// Reads and writes one row of a tensor at a computed index: gather and scatter of a single row. Split rows are not
/// moved.
namespace gspmd::detail {

constexpr bool is_index(const graph& g, int i) {
  const node& n = g.nodes[static_cast<std::size_t>(i)];
  return n.type == dtype::s64 && n.shape.count == 0;
}

/// Adds row `index` (s64, rank 0) of `x`, without dim 0. An index outside of the tensor is clamped to the nearest row,
/// as in StableHLO.
constexpr int add_dynamic_index(graph& g, int x, int index, location at);

/// Adds `x` with its row `index` replaced by `row` (`Update` is set_row_op), or with `row` added to it (add_row_op).
template <class Update>
constexpr int add_dynamic_update(graph& g, int x, int row, int index, location at) {
  if (x < 0 || row < 0 || index < 0 || !g.may_read({x, row, index}, at, "dynamic_update")) return -1;
  const node& to = g.nodes[static_cast<std::size_t>(x)];
  const node& r = g.nodes[static_cast<std::size_t>(row)];
  bool fits = to.shape.count == r.shape.count + 1 && to.type == r.type;
  for (int d = 0; d < r.shape.count && fits; ++d) fits = to.shape[d + 1] == r.shape[d];
  if (!fits)
    return g.fail(at, "dynamic_update", mistake::extent,
                  text("a row ") << name_of(r.type) << shape_text(r.shape) << " does not fit " << name_of(to.type)
                                 << shape_text(to.shape) << "; its dims must be those after the first");
  if (!is_index(g, index)) return g.fail(at, "dynamic_update", mistake::type, "the index must be one s64, of rank 0");
  node n = source(code_of<Update>, to.type, to.shape, at);
  n.operands.push_back(x);
  n.operands.push_back(row);
  n.operands.push_back(index);
  return g.add(n);
}

/// The common facts of the operators that read and write a row.
///
/// **Shapes.** Reading: x [n, a, b], index [] -> [a, b]. Writing: x [n, a, b], row [a, b], index [] -> [n, a, b].
/// **Splits.** Every dim may be split. If n is split, the result of reading is partial. When a row is written, only the
/// device with the row changes its shard.
struct row_operator : plain_operator, without_movements, reads_shards, without_arithmetic, outside_of_loops, dims_by_number {
  static constexpr leading_dim leading{.is = leading_dim::way::row};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  /// The last operand is the index, a selector.
  static constexpr operator_class meets(const node& n, monoid) {
    return {partial_class::all, std::uint32_t{1} << (n.operands.count - 1)};
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}

 protected:
  /// The rule: `[n]ab,->ab` for reading, `nab,ab,->nab` for writing.
  static constexpr void row_rule(const graph& g, const node& n, op_rule& rule, bool writes) {
    const extents& whole = operand_of(g, n, 0).shape;
    tensor_map all;
    tensor_map row;
    for (int d = 0; d < whole.count; ++d) {
      const int f = rule.add_factor(whole[d], d == 0 && !writes ? factor_kind::indexed : factor_kind::parallel);
      all.begin_dim();
      all.add_factor(f);
      if (d == 0) continue;
      row.begin_dim();
      row.add_factor(f);
    }
    rule.maps.push_back(all);
    if (writes) rule.maps.push_back(row);
    rule.maps.push_back({});
    rule.maps.push_back(writes ? all : row);
    rule.reduced_by = n.type == dtype::pred ? monoid::or_ : monoid::add;
  }
  /// Adds a bound, because only the device can compute its rows of a split operand 0.
  static constexpr void note_rows(lowering& l, const instruction& op, plan_step& s) {
    if (l.value(op.operands[0]).layout.axes_of(0) != 0) l.add_bound(s, 0, op.operands[0], 0);
  }
};

/// The tensor with one row replaced.
struct set_row_op : row_operator {
  static constexpr const char* name = "set_row";
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { row_rule(g, n, r, true); }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const node row = b.at(n.operands[1]);
    const int nothing = add_constant(b.program(), row.type, row.shape, 0, 0, n.at);
    const int dy = b.dy().id();
    b.send(0, add_dynamic_update<set_row_op>(b.program(), dy, nothing, n.operands[2], n.at));
    b.send(1, add_dynamic_index(b.program(), dy, n.operands[2], n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    note_rows(l, op, add_step<kernels::set_row>(l, op, 0, l.all_operands(op), {op.result}));
  }
};

/// The tensor with a row added to one of its rows.
struct add_row_op : row_operator {
  static constexpr const char* name = "add_row";
  static constexpr operator_class meets(const node& n, monoid kind) {
    return kind == monoid::add ? row_operator::meets(n, kind)
                               : operator_class{partial_class::none, row_operator::meets(n, kind).selectors};
  }
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { row_rule(g, n, r, true); }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const int dy = b.dy().id();
    b.send(0, dy);
    b.send(1, add_dynamic_index(b.program(), dy, n.operands[2], n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    note_rows(l, op, add_step<kernels::add_row>(l, op, 0, l.all_operands(op), {op.result}));
  }
};

/// One row of a tensor.
struct row_op : row_operator {
  static constexpr const char* name = "row";
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { row_rule(g, n, r, false); }
  /// Adds dy to one row, in place if a loop carries the gradient of the whole tensor.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const int from = n.operands[0];
    if (!is_floating(b.at(from).type)) return;
    const int dy = b.dy().id();
    const int known = b.slot(from) < 0 ? b.zero_like(from) : b.slot(from);
    b.slot(from) = add_dynamic_update<add_row_op>(b.program(), known, dy, n.operands[1], n.at);
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    note_rows(l, op, add_step<kernels::row>(l, op, 0, l.all_operands(op), {op.result}));
  }
};

constexpr int add_dynamic_index(graph& g, int x, int index, location at) {
  if (x < 0 || index < 0) return -1;
  const node& from = g.nodes[static_cast<std::size_t>(x)];
  if (from.shape.count == 0) return g.fail(at, "dynamic_index", mistake::rank, "a tensor of rank 0 has no rows");
  if (!is_index(g, index)) return g.fail(at, "dynamic_index", mistake::type, "the index must be one s64, of rank 0");
  node n = source(code_of<row_op>, from.type, {}, at);
  for (int d = 1; d < from.shape.count; ++d) n.shape.push_back(from.shape[d]);
  n.operands.push_back(x);
  n.operands.push_back(index);
  return g.add(n);
}

}  // namespace gspmd::detail
