// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/extend/kernel.hpp"
#include "gspmd/linalg/detail/matrix_ops.hpp"

namespace gspmd::detail {

/// The function of a device's blocks: the matrices a, their factors, and the orders of the rows, with one dim less.
template <int Rank, bool IsComplex>
inline constexpr local_function lu_function = [] {
  local_function f = matrix_function<Rank>(3, 1, nullptr);
  f.rule.tensors[2].pop_back();
  f.entries[0].run = [](const void*, const erased_block* b) { run_lu<narrow_element<IsComplex>>(Rank, b); };
  f.entries[1].run = [](const void*, const erased_block* b) { run_lu<wide_element<IsComplex>>(Rank, b); };
  return f;
}();
/// The function of a device's blocks: the matrices a, three numbers for each, and scratch.
template <int Rank, bool IsComplex>
inline constexpr local_function slogdet_function = [] {
  local_function f = matrix_function<Rank>(5, 1, nullptr);
  for (int number = 1; number < 4; ++number)
    for (int dim = 0; dim < 2; ++dim) f.rule.tensors[number].pop_back();
  f.entries[0].run = [](const void*, const erased_block* b) { run_slogdet<narrow_element<IsComplex>>(Rank, b); };
  f.entries[1].run = [](const void*, const erased_block* b) { run_slogdet<wide_element<IsComplex>>(Rank, b); };
  return f;
}();

/// Adds a tensor of `shape`: for each matrix, `x` where the index of the last dim is equal to `row`, and zeros
/// elsewhere. `row` is given for each index of the dim before the last; if it is -1, it is that index. If `x` is -1,
/// the values are ones. `shape` is a copy, because the graph grows.
constexpr term where_equal(graph& g, dtype type, extents shape, int row, int x, location at) {
  const int rank = shape.count;
  const auto wide = [&](int v) {
    dim_places dims;
    const int of = g.nodes[static_cast<std::size_t>(v)].shape.count;
    for (int d = 0; d < of; ++d) dims.push_back(static_cast<std::int8_t>(d));
    return term(g, add_broadcast(g, v, shape, dims, at), at);
  };
  const term column(g, add_iota(g, dtype::s32, shape, rank - 1, at), at);
  const term found =
      term::of<compare_eq_op>(row < 0 ? term(g, add_iota(g, dtype::s32, shape, rank - 2, at), at) : wide(row), column);
  const term zero(g, add_number(g, 0, type, shape, "grad", at), at);
  return term::of<where_op>(found, x < 0 ? zero.number(1) : wide(x), zero);
}

/// The LU factorisation with partial pivoting: `a` with reordered rows is l u. The first result has both factors in its
/// triangles; the diagonal of l is ones. The second result is the order of the rows.
///
/// **Shapes.** a [..., n, n] -> [..., n, n] and s32 [..., n]. **Splits.** The leading dims may be split. The two dims
/// of the matrices are gathered.
struct lu_op : matrix_operator {
  static constexpr const char* name = "lu";

  static constexpr void rule(const graph& g, const node& n, op_rule& rule) { rule_of_results(g, n, rule, {2, 1}); }
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return flops_of(p, op, 2, 0);
  }
  /// p a = l u: da = p^T l^-T (the lower triangle of l^T dl, without its diagonal, and the upper triangle of du u^T)
  /// u^-T, from d(p a) = dl u + l du (Giles 2008, 2.2, for triangular factors).
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    const matrix_terms m(g, n.at);
    const int factors = b.visited(), order = factors + 1, dy = b.dy().id();
    if (dy < 0) return;
    const int dl = m.in_triangle(dy, true, 0), du = m.in_triangle(dy, false, 1);
    const int by_l = (b.as_term(m.product(m.in_triangle(factors, true, 0), true, dl, false)) + b.as_term(dl)).id();
    const int by_u = m.product(du, false, m.in_triangle(factors, false, 1), true);
    const int inner = (b.as_term(m.in_triangle(by_l, true, 0)) + b.as_term(m.in_triangle(by_u, false, 1))).id();
    const int left = add_triangular_solve(g, factors, inner, {true, true, true}, n.at);
    const int both = add_triangular_solve(g, factors, m.transposed(left), {false, false, false}, n.at);
    b.send(0, m.product(where_equal(g, n.type, n.shape, order, -1, n.at).id(), true, both, true));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    add_step<kernels::local>(l, op, entry_of(n), {op.operands[0]}, {op.result, op.further_results[0]}).local =
        of_matrices(n.shape.count, n.type, []<int Rank, bool IsComplex>() { return &lu_function<Rank, IsComplex>; });
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

/// The sign of a determinant, the logarithm of its absolute value, and the determinant.
///
/// **Shapes.** a [..., n, n] -> three results [...]. **Splits.** The leading dims may be split. The two dims of the
/// matrices are gathered.
struct slogdet_op : matrix_operator {
  static constexpr const char* name = "slogdet";

  static constexpr void rule(const graph& g, const node& n, op_rule& rule) { rule_of_results(g, n, rule, {0, 0, 0}); }
  static constexpr void name_dim(text& t, const graph&, const node& n, int, int dim) {
    if (dim >= n.shape.count) t << " (of its matrices)";
  }
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return flops_of(p, op, 2, 0);
  }
  /// Jacobi's formula: d det = det tr(a^-1 da). So the gradient of the logarithm is the real part of the trace. The
  /// gradient of a complex sign is the sign times i times the imaginary part of the trace. A real sign has no gradient.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    const int sign = b.visited(), log_size = sign + 1, determinant = sign + 2;
    term factor(g, -1, n.at);
    const auto add = [&](term t) { factor = factor.id() < 0 ? t : factor + t; };
    if (const int by = b.slot(log_size); by >= 0)
      add(is_complex(n.type) ? term::of<complex_op>(b.as_term(by), b.as_term(by).number(0)) : b.as_term(by));
    if (const int by = b.slot(determinant); by >= 0) add(b.as_term(by) * b.as_term(determinant));
    if (const int by = b.slot(sign); by >= 0 && is_complex(n.type)) {
      const term turn = term::of<imag_op>(b.as_term(by) * b.as_term(sign));
      add(term::of<complex_op>(turn.number(0), turn));
    }
    if (factor.id() < 0) return;
    const extents shape = g.nodes[static_cast<std::size_t>(n.operands[0])].shape;
    b.send(0, add_solve(g, n.operands[0], where_equal(g, n.type, shape, -1, factor.id(), n.at).id(), true, n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const extents shape = l.value(op.operands[0]).global;  // a copy: values move when scratch is added
    const std::int64_t rows = shape[shape.count - 1];
    const int scratch = add_scratch(l, op, rows, rows);
    add_step<kernels::local>(l, op, entry_of(l.node_of(op)), {op.operands[0]},
                             {op.result, op.further_results[0], op.further_results[1], scratch})
        .local = of_matrices(shape.count, l.node_of(op).type,
                             []<int Rank, bool IsComplex>() { return &slogdet_function<Rank, IsComplex>; });
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

/// Adds lu. Returns the node of the factors; the next node is that of the order. With `of_panels`, matrices may have
/// more rows than columns. For panels, gradients only need the order, which has no gradient.
constexpr int add_lu(graph& g, int a, location at, bool of_panels = false) {
  if (a < 0) return -1;
  const node of = g.nodes[static_cast<std::size_t>(a)];
  if (!of_panels && !has_matrices(g, of, lu_op::name, at)) return -1;
  node n = source(code_of<lu_op>, of.type, of.shape, at);
  n.operands.push_back(a);
  const int id = g.add(n);
  extents rows = of.shape;
  rows.pop_back();
  return id < 0 || g.add_result(dtype::s32, rows) < 0 ? -1 : id;
}
/// Adds slogdet. Returns the node of the sign; the next nodes are those of the logarithm and the determinant.
constexpr int add_slogdet(graph& g, int a, const char* op, location at) {
  if (a < 0) return -1;
  const node of = g.nodes[static_cast<std::size_t>(a)];
  if (!has_matrices(g, of, op, at)) return -1;
  extents numbers = of.shape;
  numbers.pop_back();
  numbers.pop_back();
  node n = source(code_of<slogdet_op>, of.type, numbers, at);
  n.operands.push_back(a);
  const int id = g.add(n);
  return id < 0 || g.add_result(part_of(of.type), numbers) < 0 || g.add_result(of.type, numbers) < 0 ? -1 : id;
}

}  // namespace gspmd::detail
