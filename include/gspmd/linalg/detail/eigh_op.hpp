// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/extend/kernel.hpp"
#include "gspmd/linalg/detail/matrix_ops.hpp"

namespace gspmd::detail {

/// The function of a device's blocks: the matrices a, the vectors, the values, which have one dim less, and scratch.
template <int Rank, bool IsComplex>
inline constexpr local_function eigh_function = [] {
  local_function f = matrix_function<Rank>(4, 1, nullptr);
  f.rule.tensors[2].pop_back();
  f.entries[0].run = [](const void*, const erased_block* b) { run_eigh<narrow_element<IsComplex>>(Rank, b); };
  f.entries[1].run = [](const void*, const erased_block* b) { run_eigh<wide_element<IsComplex>>(Rank, b); };
  return f;
}();

/// Eigenvectors and eigenvalues of a symmetric or Hermitian matrix. The eigenvectors are the columns of the first
/// result.
///
/// **Shapes.** a [..., n, n] -> [..., n, n] and [..., n]. **Splits.** The leading dims may be split. The two dims of
/// the matrices are gathered.
struct eigh_op : matrix_operator {
  static constexpr const char* name = "eigh";

  static constexpr void rule(const graph& g, const node& n, op_rule& rule) { rule_of_results(g, n, rule, {2, 1}); }
  /// 2 n^3 for the tridiagonal matrix, 4/3 n^3 for its vectors, and two rotations of the vectors for each value, with 3
  /// n flops for each element.
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return flops_of(p, op, 28, 0);
  }
  /// a = v diag(w) v^H: da = conj(v) (diag(dw) + (v^T dv) / (w_j - w_i)) v^T (Giles, An extended collection of matrix
  /// derivative results, 2008, 3.1). If two values are equal, the quotient is not finite, because their vectors are not
  /// determined.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    const matrix_terms m(g, n.at);
    const int v = b.visited(), w = v + 1, dv = b.slot(v), dw = b.slot(w), row = n.shape.count - 2, column = row + 1;
    const auto along = [&](int x, int without) {
      dim_places dims;
      for (int d = 0; d < n.shape.count; ++d)
        if (d != without) dims.push_back(static_cast<std::int8_t>(d));
      const term wide(g, add_broadcast(g, x, n.shape, dims, n.at), n.at);
      return is_complex(n.type) ? term::of<complex_op>(wide, wide.number(0)) : wide;
    };
    const auto index = [&](int dim) { return term(g, add_iota(g, dtype::s32, n.shape, dim, n.at), n.at); };
    const term on_diagonal = term::of<compare_eq_op>(index(row), index(column));
    const term by_values = dw >= 0 ? along(dw, row) : along(w, row).number(0);
    term by_vectors = by_values.number(0);
    if (dv >= 0) by_vectors = term(g, m.product(v, true, dv, false), n.at) / (along(w, row) - along(w, column));
    const int inner = term::of<where_op>(on_diagonal, by_values, by_vectors).id();
    b.send(0, m.product(m.product(m.conjugated(v), false, inner, false), false, v, true));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    const std::int64_t rows = n.shape[n.shape.count - 1];
    add_step<kernels::local>(l, op, entry_of(n), {op.operands[0]},
                             {op.result, op.further_results[0], add_scratch(l, op, rows + 2, rows)})
        .local = of_matrices(n.shape.count, n.type, []<int Rank, bool IsComplex>() { return &eigh_function<Rank, IsComplex>; });
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

/// Adds eigh. Returns the node of the vectors; the next node is that of the values.
constexpr int add_eigh(graph& g, int a, location at) {
  if (a < 0) return -1;
  const node of = g.nodes[static_cast<std::size_t>(a)];
  if (!has_matrices(g, of, eigh_op::name, at)) return -1;
  node n = source(code_of<eigh_op>, of.type, of.shape, at);
  n.operands.push_back(a);
  const int id = g.add(n);
  extents values = of.shape;
  values.pop_back();
  return id < 0 || g.add_result(part_of(of.type), values) < 0 ? -1 : id;
}

}  // namespace gspmd::detail
