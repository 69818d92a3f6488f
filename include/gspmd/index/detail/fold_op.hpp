// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/index/detail/fold_step.hpp"
#include "gspmd/index/detail/scan_op.hpp"

/// Reductions and scans of several tensors by a monoid of the user. If the dim is split, each device reduces its part.
/// Then the totals of the parts are gathered on all devices, and each device continues from them.
namespace gspmd::detail {

constexpr extents shape_of_fold(const extents& shape, const fold_spec& how) {
  extents left;
  for (int d = 0; d < shape.count; ++d)
    if (how.is_scan || d != how.dim) left.push_back(shape[d]);
  return left;
}
/// Adds an operator on tensors with one shape, with the same number of results. `how` has the dim, and the direction of
/// a scan.
template <class Op>
constexpr int add_fold(graph& g, span<const int> operands, const local_function& monoid, const fold_spec& how, location at) {
  for (const int o : operands)
    if (o < 0) return -1;
  const node x = g.nodes[static_cast<std::size_t>(operands[0])];
  node n = source(code_of<Op>, x.type, x.shape, at);
  n.shape = shape_of_fold(x.shape, how);
  n.local = &monoid;
  for (const int o : operands) n.operands.push_back(o);
  add_attributes(n, how.dim, how.is_scan, how.is_exclusive, how.is_reversed);
  const extents shape = n.shape;
  const int id = g.add(n);
  if (id < 0) return -1;
  for (const int o : operands.subspan(1))
    if (g.add_result(g.nodes[static_cast<std::size_t>(o)].type, shape) < 0) return -1;
  return id;
}

/// The common facts of reduce_by and scan_by.
struct fold_operator : plain_operator, reduced_first, without_movements, reads_shards, outside_of_loops, dims_by_number {
  static constexpr leading_dim leading{.count = 1};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool keeps_slices = false;

  /// 1 for each element of the first operand.
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return saturating_elements(p.value(op.operands[0]).local);
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    b.program().fail(n.at, name_of(n.op), mistake::no_derivative,
                     "has no gradient: that of a monoid is not known; stop_gradient its operands, or reduce by add or multiply");
  }
  static constexpr vec<own_collective> sends(const graph& g, const mesh_shape& mesh, const node& n, const sharding& s) {
    vec<own_collective> all;
    for (int k = 0; k < n.operands.count; ++k) {
      const node& x = operand_of(g, n, k);
      all.push_back(gathered_parts(mesh, x.shape, s, spec_of(n).dim, 1, bytes_of(x.type)));
    }
    return all;
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
  static constexpr fold_spec spec_of(const node& n) {
    const auto& a = n.attributes;
    return {static_cast<std::int8_t>(a[0]), a[1] != 0, a[2] != 0, a[3] != 0};
  }

 protected:
  static constexpr void fold_step(lowering& l, const instruction& op, const fold_spec& spec, const vec<int>& operands,
                                  const vec<int>& results) {
    add_step<kernels::fold>(l, op, spec, operands, results).local = l.node_of(op).local;
  }
  template <class Lowering>
  static constexpr vec<int> results_of(Lowering&, const instruction& op) {
    vec<int> results(1, op.result);
    for (const int v : op.further_results) results.push_back(v);
    return results;
  }
  /// Returns the totals of the parts, gathered on all devices.
  template <class Lowering>
  static constexpr vec<int> totals(Lowering& l, const instruction& op, const fold_spec& s) {
    vec<int> own, all;
    for (const int o : op.operands) {
      local_value total = l.value(o);
      total.global[s.dim] = parts_of(l.out.mesh, total.layout, s.dim);
      total.local[s.dim] = 1;
      own.push_back(l.add_value(total));
    }
    fold_step(l, op, {s.dim}, {op.operands.begin(), op.operands.end()}, own);
    for (const int v : own) all.push_back(l.gather_parts(op, v, s.dim));
    return all;
  }
};

/// A reduction along one dim by a monoid of the user. Rule: `ab->a` for each operand.
///
/// **Shapes.** Each operand [a, b] -> [a]. **Splits.** Every dim may be split. If the reduced dim is split, the devices
/// gather the totals of the parts, and all have the result.
struct reduce_by_op : fold_operator {
  static constexpr const char* name = "reduce_by";
  static constexpr bool uniform = false;
  static constexpr void rule(const graph& g, const node& n, op_rule& rule) {
    const extents& in = operand_of(g, n, 0).shape;
    const int dim = spec_of(n).dim;
    tensor_map operand, result;
    for (int d = 0; d < in.count; ++d) {
      const bool is_folded = d == dim;
      const int f = rule.add_factor(in[d], is_folded ? factor_kind::exchanged : factor_kind::parallel);
      operand.begin_dim();
      operand.add_factor(f);
      if (is_folded) continue;
      result.begin_dim();
      result.add_factor(f);
    }
    for (int k = 0; k < n.operands.count; ++k) rule.maps.push_back(operand);
    for (int r = 0; r < n.results; ++r) rule.maps.push_back(result);
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const fold_spec s = spec_of(l.node_of(op));
    const bool is_whole = l.value(op.operands[0]).layout.axes_of(s.dim) == 0;
    fold_step(l, op, s, is_whole ? vec<int>{op.operands.begin(), op.operands.end()} : totals(l, op, s), results_of(l, op));
  }
};

/// A scan along one dim by a monoid of the user. Rule: `ab->ab` for each operand.
///
/// **Shapes.** Each operand -> the shape of the operand. **Splits.** Every dim may be split. If the scanned dim is
/// split, the devices gather the totals of the parts.
struct scan_by_op : fold_operator {
  static constexpr const char* name = "scan_by";
  static constexpr dim_mask exchanges(const node& n) { return dim_bit(spec_of(n).dim); }
  static constexpr bool uniform = true;
  static constexpr void rule(const graph&, const node& n, op_rule& rule) { uniform_rule(n.shape, rule); }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const fold_spec s = spec_of(l.node_of(op));
    vec<int> operands(op.operands.begin(), op.operands.end());
    if (l.value(operands[0]).layout.axes_of(s.dim) != 0) {
      vec<int> starts;
      const vec<int> all = totals(l, op, s);
      for (const int v : all) starts.push_back(l.add_value(local_value(l.value(v))));
      fold_step(l, op, {s.dim, true, true, s.is_reversed}, all, starts);
      for (const int v : starts) operands.push_back(v);
    }
    fold_step(l, op, s, operands, results_of(l, op));
  }
};

}  // namespace gspmd::detail
