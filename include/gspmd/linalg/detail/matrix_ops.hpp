// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ops/einsum/einsum.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/ops/transpose.hpp"
#include "gspmd/extend/kernel.hpp"
#include "gspmd/linalg/detail/matrix_functions.hpp"

/// Factorisations of matrices, and solutions of systems. The matrices are the last two dims, which are whole on a
/// device. There is one matrix for each index of the other dims.
namespace gspmd::detail {

inline constexpr int most_matrix_dims = 8;

constexpr void keep_way(node& n, matrix_way way) { add_attributes(n, way.lower, way.transposed, way.unit); }
constexpr matrix_way way_of(const node& n) { return {n.attributes[0] != 0, n.attributes[1] != 0, n.attributes[2] != 0}; }
constexpr matrix_way way_number(int n) { return {(n & 4) != 0, (n & 2) != 0, (n & 1) != 0}; }
constexpr int number_of(matrix_way way) { return (way.lower ? 4 : 0) + (way.transposed ? 2 : 0) + (way.unit ? 1 : 0); }
inline constexpr matrix_way matrix_ways[8] = {way_number(0), way_number(1), way_number(2), way_number(3),
                                              way_number(4), way_number(5), way_number(6), way_number(7)};

/// Returns the function of a device's blocks: operands, results, and scratch if the function needs it, all of `Rank`
/// dims. The functions are called with the object `way`.
template <int Rank>
constexpr local_function matrix_function(int blocks, int operands, const matrix_way* way) {
  local_function f;
  for (int tensor = 0; tensor < blocks; ++tensor) {
    inline_vec<std::int8_t, max_rank> dims;
    for (int d = 0; d < Rank; ++d) dims.push_back(static_cast<std::int8_t>(d));
    f.rule.tensors.push_back(dims);
  }
  for (int d = 0; d < Rank; ++d) {
    rule_letter letter;
    letter.kind = factor_kind::whole;  // a block without elements is passed to the function too
    f.rule.letters.push_back(letter);
  }
  f.rule.results = static_cast<std::int8_t>(blocks - operands);
  f.object = way;
  f.entry_count = 2;  // the narrower type is first
  return f;
}
/// The element types of matrices. Real and complex elements have separate functions, so that a program only contains
/// the functions that it calls.
template <bool IsComplex>
using narrow_element = std::conditional_t<IsComplex, c64, float>;
template <bool IsComplex>
using wide_element = std::conditional_t<IsComplex, c128, double>;

template <int Rank, bool IsComplex>
inline constexpr local_function cholesky_function = [] {
  local_function made = matrix_function<Rank>(2, 1, nullptr);
  made.entries[0].run = [](const void*, const erased_block* b) { run_cholesky<narrow_element<IsComplex>>(Rank, b); };
  made.entries[1].run = [](const void*, const erased_block* b) { run_cholesky<wide_element<IsComplex>>(Rank, b); };
  return made;
}();
template <int Rank, bool IsComplex, int Way>
inline constexpr local_function triangular_solve_function = [] {
  local_function made = matrix_function<Rank>(3, 2, matrix_ways + Way);
  made.entries[0].run = [](const void* way, const erased_block* b) {
    run_triangular_solve<narrow_element<IsComplex>>(Rank, way, b);
  };
  made.entries[1].run = [](const void* way, const erased_block* b) {
    run_triangular_solve<wide_element<IsComplex>>(Rank, way, b);
  };
  return made;
}();
template <int Rank, bool IsComplex, int Way>
inline constexpr local_function solve_function = [] {
  local_function made = matrix_function<Rank>(4, 2, matrix_ways + Way);
  made.entries[0].run = [](const void* way, const erased_block* b) { run_solve<narrow_element<IsComplex>>(Rank, way, b); };
  made.entries[1].run = [](const void* way, const erased_block* b) { run_solve<wide_element<IsComplex>>(Rank, way, b); };
  return made;
}();
/// Returns the function for `rank`; ranks begin at 2.
template <class Of>
constexpr const local_function* of_rank(int rank, Of of) {
  return [&]<int... R>(std::integer_sequence<int, R...>) {
    const local_function* const all[] = {of.template operator()<2 + R>()...};
    return all[rank - 2];
  }(std::make_integer_sequence<int, most_matrix_dims - 1>{});
}
/// Returns the function for `rank`, and for real or complex elements.
template <class Of>
constexpr const local_function* of_matrices(int rank, dtype type, Of of) {
  return is_complex(type) ? of_rank(rank, [&]<int Rank>() { return of.template operator()<Rank, true>(); })
                          : of_rank(rank, [&]<int Rank>() { return of.template operator()<Rank, false>(); });
}
template <class Of>
constexpr const local_function* of_matrices_and_way(int rank, dtype type, int way, Of of) {
  return of_matrices(rank, type, [&]<int Rank, bool IsComplex>() {
    return [&]<int... W>(std::integer_sequence<int, W...>) {
      const local_function* const all[] = {of.template operator()<Rank, IsComplex, W>()...};
      return all[way];
    }(std::make_integer_sequence<int, 8>{});
  });
}

constexpr int add_cholesky(graph& g, int a, location at);
constexpr int add_triangular_solve(graph& g, int a, int b, matrix_way way, location at);
constexpr int add_solve(graph& g, int a, int b, bool transposed, location at);

/// The products of matrices in gradients, for each index of the first dims.
class matrix_terms {
 public:
  constexpr matrix_terms(graph& g, location at) : g_(g), at_(at) {}

  /// Adds op(a) op(b), where op transposes or does nothing.
  [[nodiscard]] constexpr int product(int a, bool transpose_a, int b, bool transpose_b) const {
    if (a < 0 || b < 0) return -1;
    einsum_equation e;
    e.operands.push_back({});
    e.operands.push_back({});
    const int rank = g_.nodes[static_cast<std::size_t>(a)].shape.count;
    for (int d = 0; d < rank - 2; ++d) {
      const char letter = static_cast<char>('a' + d);
      for (auto& o : e.operands) o.push_back(letter);
      e.result.push_back(letter);
    }
    const auto add = [](auto& letters, bool transpose, char row, char column) {
      letters.push_back(transpose ? column : row);
      letters.push_back(transpose ? row : column);
    };
    add(e.operands[0], transpose_a, 'x', 'y');
    add(e.operands[1], transpose_b, 'y', 'z');
    add(e.result, false, 'x', 'z');
    return add_einsum(g_, e, {a, b}, at_);
  }
  [[nodiscard]] constexpr int transposed(int a) const {
    if (a < 0) return -1;
    const int rank = g_.nodes[static_cast<std::size_t>(a)].shape.count;
    dim_places order;
    for (int d = 0; d < rank - 2; ++d) order.push_back(static_cast<std::int8_t>(d));
    order.push_back(static_cast<std::int8_t>(rank - 1));
    order.push_back(static_cast<std::int8_t>(rank - 2));
    return add_transpose(g_, a, order, at_);
  }
  /// Adds the conjugate of a, or returns a if it is real.
  [[nodiscard]] constexpr int conjugated(int a) const {
    return a < 0 || !is_complex(g_.nodes[static_cast<std::size_t>(a)].type) ? a : conjugate(g_, a, at_);
  }
  [[nodiscard]] constexpr int adjoint(int a) const { return conjugated(transposed(a)); }
  /// Adds a triangle of a, with the diagonal times `of_diagonal`, and zeros elsewhere.
  [[nodiscard]] constexpr int in_triangle(int a, bool lower, double of_diagonal) const {
    if (a < 0) return -1;
    const term x(g_, a, at_);
    const extents shape = g_.nodes[static_cast<std::size_t>(a)].shape;
    const auto index = [&](int dim) { return term(g_, add_iota(g_, dtype::s32, shape, dim, at_), at_); };
    const term row = index(shape.count - 2), column = index(shape.count - 1);
    const term inside = term::of(lower ? code_of<compare_gt_op> : code_of<compare_lt_op>, row, column);
    const term zero = x.number(0);
    const term diagonal = of_diagonal == 0 ? zero : of_diagonal == 1 ? x : x * of_diagonal;  // 0 times infinity is NaN
    const term rest = term::of<where_op>(term::of<compare_eq_op>(row, column), diagonal, zero);
    return term::of<where_op>(inside, x, rest).id();
  }

 private:
  graph& g_;
  location at_;
};

/// The common facts of matrix operators.
///
/// **Splits.** The dims before the last two may be split, and so may the columns of right-hand sides. The other dims
/// are gathered.
struct matrix_operator : plain_operator, reduced_first, without_movements, reads_shards, outside_of_loops {
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 1, .backward = 1};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  static constexpr leading_dim leading{.most = most_matrix_dims};  // all tensors get the dim, and no attribute numbers a dim
  static constexpr replication_words replication{"", "takes whole matrices: it would gather",
                                                 "split a dim before the last two, or the columns of right-hand sides, or write "
                                                 "allow_replication(...) around it"};
  static constexpr void rule(const graph&, const node& n, op_rule& rule) {
    const bool has_columns = n.operands.count == 2;
    const int rank = n.shape.count;
    tensor_map matrix, cols;
    for (int d = 0; d < rank - 2; ++d) {
      const int batch = rule.add_factor(n.shape[d], factor_kind::parallel);
      for (tensor_map* m : {&matrix, &cols}) {
        m->begin_dim();
        m->add_factor(batch);
      }
    }
    const int rows = rule.add_factor(n.shape[rank - 2], factor_kind::whole);
    const int others = rule.add_factor(n.shape[rank - 2], factor_kind::whole);
    for (tensor_map* m : {&matrix, &cols}) {
      m->begin_dim();
      m->add_factor(rows);
      m->begin_dim();
    }
    matrix.add_factor(others);
    if (has_columns) cols.add_factor(rule.add_factor(n.shape[rank - 1], factor_kind::parallel));
    rule.maps.push_back(matrix);
    if (has_columns) rule.maps.push_back(cols);
    rule.maps.push_back(has_columns ? cols : matrix);
  }
  static constexpr void name_dim(text& t, const graph&, const node& n, int operand, int dim) {
    const int rank = n.shape.count;
    if (dim == rank - 2 || (dim == rank - 1 && operand == 0)) t << " (of its matrices)";
  }

 protected:
  /// The rule of operators with one operand. Result r has the first dims, and the last `dims[r]` of the two matrix
  /// dims.
  static constexpr void rule_of_results(const graph& g, const node& n, op_rule& rule, std::initializer_list<int> dims) {
    const extents& shape = g.nodes[static_cast<std::size_t>(n.operands[0])].shape;
    const int rank = shape.count;
    for (int d = 0; d < rank; ++d) rule.add_factor(shape[d], d < rank - 2 ? factor_kind::parallel : factor_kind::whole);
    const auto add = [&](int of_matrix) {
      tensor_map m;
      for (int d = 0; d < rank; ++d) {
        if (d >= rank - 2 && d < rank - of_matrix) continue;
        m.begin_dim();
        m.add_factor(d);
      }
      rule.maps.push_back(m);
    };
    add(2);
    for (const int count : dims) add(count);
  }
  /// Returns the flops of a device: `factors` n^3 / 3 for each matrix, and `sides` n^2 for each column.
  static constexpr std::int64_t flops_of(const local_program& p, const instruction& op, std::int64_t factors,
                                         std::int64_t sides) {
    const extents& a = p.value(op.operands[0]).local;
    const std::int64_t n = a[a.count - 1];
    const std::int64_t of_product = is_complex(p.value(op.operands[0]).type) ? 4 : 1;  // the number of real multiplications
    const std::int64_t all = saturating_multiply(saturating_elements(a), of_product * factors * n) / 3;
    if (op.operands.count == 1) return all;
    return all + saturating_multiply(saturating_elements(p.value(op.operands[1]).local), of_product * sides * n);
  }
  static constexpr int entry_of(const node& n) { return part_of(n.type) == dtype::f64 ? 1 : 0; }
  /// Adds a scratch value for one matrix, with the type and rank of the operator's first operand.
  template <class Lowering>
  static constexpr int add_scratch(Lowering& l, const instruction& op, std::int64_t rows, std::int64_t cols) {
    local_value scratch = l.value(op.operands[0]);
    const int rank = scratch.local.count;
    scratch.layout = sharding{};
    scratch.global = extents(rank, 1);
    scratch.global[rank - 2] = rows;
    scratch.global[rank - 1] = cols;
    scratch.local = scratch.global;
    return l.add_value(scratch);
  }
};

/// The Cholesky factor: the lower triangle l with l l^H = (a + a^H) / 2 (Golub and Van Loan, 4.2). The kernel computes
/// the mean, because operators for it would be two more passes over memory.
///
/// **Shapes.** a [..., n, n] -> [..., n, n]. **Splits.** As in matrix_operator.
struct cholesky_op : matrix_operator {
  static constexpr const char* name = "cholesky";

  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return flops_of(p, op, 1, 0);
  }
  /// Murray, Differentiation of the Cholesky decomposition (2016), 10. p is the lower triangle of l^T dl, with its
  /// diagonal halved. The gradient of a is the Hermitian part of l^-T p conj(l)^-1. Elements of dl above the diagonal
  /// do not count: l is 0 there for every a.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const matrix_terms m(b.program(), n.at);
    const int l = b.visited(), dl = m.in_triangle(b.dy().id(), true, 1);
    const int p = m.in_triangle(m.product(l, true, dl, false), true, 0.5);
    const int half = add_triangular_solve(b.program(), l, p, {true, true, false}, n.at);
    const int other = add_triangular_solve(b.program(), m.conjugated(l), m.transposed(half), {true, true, false}, n.at);
    const int slope = m.transposed(other);
    b.send(0, (b.as_term(slope) * 0.5 + b.as_term(m.adjoint(slope)) * 0.5).id());
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    add_step<kernels::local>(l, op, entry_of(n), {op.operands[0]}, {op.result}).local =
        of_matrices(n.shape.count, n.type, []<int Rank, bool IsComplex>() { return &cholesky_function<Rank, IsComplex>; });
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

/// Solves systems with triangular matrices.
///
/// **Shapes.** a [..., n, n], b [..., n, k] -> x [..., n, k]. **Splits.** As in matrix_operator: the leading dims and k
/// may be split.
struct triangular_solve_op : matrix_operator {
  static constexpr const char* name = "triangular_solve";

  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return flops_of(p, op, 0, 1);
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const matrix_terms m(b.program(), n.at);
    const auto way = way_of(n);
    const int a = n.operands[0], x = b.visited();
    const int by_b = add_triangular_solve(b.program(), a, b.dy().id(), {way.lower, !way.transposed, way.unit}, n.at);
    const int outer = way.transposed ? m.product(x, false, by_b, true) : m.product(by_b, false, x, true);
    b.send(1, by_b);
    b.send(0, (-b.as_term(m.in_triangle(outer, way.lower, way.unit ? 0 : 1))).id());
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    add_step<kernels::local>(l, op, entry_of(n), {op.operands[0], op.operands[1]}, {op.result}).local =
        of_matrices_and_way(n.shape.count, n.type, number_of(way_of(n)),
                            []<int Rank, bool IsComplex, int Way>() { return &triangular_solve_function<Rank, IsComplex, Way>; });
  }
  static void describe(std::string& t, const plan_view&, const plan_step* step) {
    if (step == nullptr || step->local == nullptr) return;
    const auto& way = *static_cast<const matrix_way*>(step->local->object);
    t += std::string(way.lower ? " lower" : " upper") + (way.transposed ? ", transposed" : "") +
         (way.unit ? ", unit diagonal" : "");
  }
};

/// Solves systems by Gaussian elimination with partial pivoting (Golub and Van Loan, 3.4).
///
/// **Shapes.** a [..., n, n], b [..., n, k] -> x [..., n, k]. **Splits.** As in matrix_operator: the leading dims and k
/// may be split.
struct solve_op : matrix_operator {
  static constexpr const char* name = "solve";

  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return flops_of(p, op, 2, 2);
  }
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const matrix_terms m(b.program(), n.at);
    const bool transposed = way_of(n).transposed;
    const int x = b.visited(), by_b = add_solve(b.program(), n.operands[0], b.dy().id(), !transposed, n.at);
    b.send(1, by_b);
    b.send(0, (-b.as_term(transposed ? m.product(x, false, by_b, true) : m.product(by_b, false, x, true))).id());
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    const std::int64_t rows = n.shape[n.shape.count - 2];
    add_step<kernels::local>(l, op, entry_of(n), {op.operands[0], op.operands[1]}, {op.result, add_scratch(l, op, rows, rows)})
        .local = of_matrices_and_way(n.shape.count, n.type, number_of(way_of(n)),
                                     []<int Rank, bool IsComplex, int Way>() { return &solve_function<Rank, IsComplex, Way>; });
  }
  static void describe(std::string& t, const plan_view&, const plan_step* step) {
    if (step != nullptr && step->local != nullptr && static_cast<const matrix_way*>(step->local->object)->transposed)
      t += " transposed";
  }
};

/// Returns true if `a` consists of square matrices of float, double, or complex numbers of float or double.
constexpr bool has_matrices(graph& g, const node& a, const char* op, location at) {
  const int rank = a.shape.count;
  if (part_of(a.type) != dtype::f32 && part_of(a.type) != dtype::f64)
    g.fail(at, op, mistake::type,
           text("is given ") << name_of(a.type) << "; it takes float, double and complex numbers; convert before and after it");
  else if (rank < 2 || rank > most_matrix_dims)
    g.fail(at, op, mistake::rank,
           text("is given ") << shape_text(a.shape) << "; it takes 2 to " << most_matrix_dims
                             << " dims; the last two are those of a matrix");
  else if (a.shape[rank - 1] != a.shape[rank - 2])
    g.fail(at, op, mistake::extent, text("is given ") << shape_text(a.shape) << "; the last two dims, a matrix, are equal");
  else return true;
  return false;
}
constexpr bool fits_matrices(graph& g, const node& a, const node& b, const char* op, location at) {
  if (!has_matrices(g, a, op, at)) return false;
  const int rank = a.shape.count;
  bool fits = b.shape.count == rank && b.type == a.type;
  for (int d = 0; d < rank - 1 && fits; ++d) fits = a.shape[d] == b.shape[d];
  if (fits) return true;
  g.fail(at, op, b.type == a.type ? mistake::extent : mistake::type,
         text("is given matrices ") << name_of(a.type) << shape_text(a.shape) << " and right-hand sides " << name_of(b.type)
                                    << shape_text(b.shape) << "; these have its type and all its dims but the last one");
  return false;
}

constexpr int add_cholesky(graph& g, int a, location at) {
  if (a < 0) return -1;
  const node of = g.nodes[static_cast<std::size_t>(a)];
  if (!has_matrices(g, of, cholesky_op::name, at)) return -1;
  node n = source(code_of<cholesky_op>, of.type, of.shape, at);
  n.operands.push_back(a);
  return g.add(n);
}
template <class Op>
constexpr int add_system(graph& g, int a, int b, matrix_way way, location at) {
  if (a < 0 || b < 0) return -1;
  const node of = g.nodes[static_cast<std::size_t>(a)], sides = g.nodes[static_cast<std::size_t>(b)];
  if (!fits_matrices(g, of, sides, Op::name, at)) return -1;
  node n = source(code_of<Op>, sides.type, sides.shape, at);
  n.operands.push_back(a);
  n.operands.push_back(b);
  keep_way(n, way);
  return g.add(n);
}
constexpr int add_triangular_solve(graph& g, int a, int b, matrix_way way, location at) {
  return add_system<triangular_solve_op>(g, a, b, way, at);
}
constexpr int add_solve(graph& g, int a, int b, bool transposed, location at) {
  return add_system<solve_op>(g, a, b, {true, transposed, false}, at);
}

}  // namespace gspmd::detail
