// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/shift.hpp"
#include "gspmd/extend/kernel.hpp"
#include "gspmd/linalg/detail/matrix_ops.hpp"

namespace gspmd::detail {

/// The function of a device's blocks: the three diagonals, b, x, and scratch.
template <int Rank, bool IsComplex>
inline constexpr local_function tridiagonal_function = [] {
  local_function f = matrix_function<Rank>(6, 4, nullptr);
  f.entries[0].run = [](const void*, const erased_block* b) { run_tridiagonal<narrow_element<IsComplex>>(Rank, b); };
  f.entries[1].run = [](const void*, const erased_block* b) { run_tridiagonal<wide_element<IsComplex>>(Rank, b); };
  return f;
}();

/// Adds the solution of systems. The caller has checked the shapes of the three diagonals and b.
constexpr int add_tridiagonal_solve(graph& g, const int (&operands)[4], location at);

/// Solves systems with tridiagonal matrices along the last dim, by elimination without pivoting (Golub and Van Loan,
/// 4.3).
///
/// **Shapes.** Three diagonals and b, each [..., n] -> x [..., n]. **Splits.** The last dim is gathered. The other dims
/// may be split.
struct tridiagonal_op : matrix_operator {
  static constexpr const char* name = "tridiagonal_solve";
  static constexpr replication_words replication{"", "takes whole systems: it would gather",
                                                 "split another dim, or let the number of parts be the number of devices"};

  static constexpr void rule(const graph&, const node& n, op_rule& rule) {
    tensor_map map;
    for (int d = 0; d < n.shape.count; ++d) {
      map.begin_dim();
      map.add_factor(rule.add_factor(n.shape[d], d + 1 < n.shape.count ? factor_kind::parallel : factor_kind::whole));
    }
    for (int tensor = 0; tensor <= n.operands.count; ++tensor) rule.maps.push_back(map);
  }
  static constexpr void name_dim(text& t, const graph&, const node& n, int, int dim) {
    if (dim == n.shape.count - 1) t << " (of its systems)";
  }
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program& p, const instruction& op) {
    return saturating_multiply(is_complex(p.value(op.result).type) ? 32 : 8, saturating_elements(p.value(op.result).local));
  }
  /// With A^T y = dx: db = y, and dA = -y x^T on the three diagonals.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    graph& g = b.program();
    const int last = n.shape.count - 1;
    const auto moved = [&](int x, int by) { return add_shift(g, x, last, by, n.at); };
    const int operands[] = {moved(n.operands[2], -1), n.operands[1], moved(n.operands[0], 1), b.dy().id()};
    const int x = b.visited();
    const term y(g, add_tridiagonal_solve(g, operands, n.at), n.at);
    b.send(3, y);
    b.send(0, -y * term(g, moved(x, -1), n.at));
    b.send(1, -y * term(g, x, n.at));
    b.send(2, -y * term(g, moved(x, 1), n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    const node& n = l.node_of(op);
    const int scratch = add_scratch(l, op, 2 * tridiagonal_lanes, n.shape[n.shape.count - 1]);
    add_step<kernels::local>(l, op, entry_of(n), l.all_operands(op), {op.result, scratch}).local =
        of_matrices(n.shape.count, n.type, []<int Rank, bool IsComplex>() { return &tridiagonal_function<Rank, IsComplex>; });
  }
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

constexpr int add_tridiagonal_solve(graph& g, const int (&operands)[4], location at) {
  const node& b = g.nodes[static_cast<std::size_t>(operands[3])];
  node n = source(code_of<tridiagonal_op>, b.type, b.shape, at);
  for (const int o : operands) n.operands.push_back(o);
  return g.add(n);
}

}  // namespace gspmd::detail
