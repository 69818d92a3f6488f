// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/detail/ops/einsum.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/ops/reshaping.hpp"
#include "gspmd/detail/ops/sources.hpp"

/// What the passes know of the operators: one family per entry of one list.
///
///   owns(op)     whether the opcode is of this family
///   rule         how the dims of operands and result correspond
///   forward, backward   from which round on completion moves shardings through it (GSPMD 3.5; 0 is first)
namespace gspmd::detail {

struct source_family {
  static constexpr bool owns(opcode op) { return op <= opcode::iota; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph&, const node& n, op_rule& r) { uniform_rule(n.shape, r); }
};
struct elementwise_family {
  static constexpr bool owns(opcode op) { return is_elementwise(op) || op == opcode::reshard; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph&, const node& n, op_rule& r) { uniform_rule(n.shape, r); }
};
struct transpose_family {
  static constexpr bool owns(opcode op) { return op == opcode::transpose; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { transpose_rule(g, n, r); }
};
struct reshape_family {
  static constexpr bool owns(opcode op) { return op == opcode::reshape; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { reshape_rule(g, n, r); }
};
struct einsum_family {
  static constexpr bool owns(opcode op) { return op == opcode::einsum; }
  static constexpr int forward = 1, backward = 1;
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { einsum_rule(g, n, r); }
};
struct reduce_family {
  static constexpr bool owns(opcode op) { return op == opcode::reduce; }
  static constexpr int forward = 1, backward = 1;
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { reduce_rule(g, n, r); }
};
struct broadcast_family {
  static constexpr bool owns(opcode op) { return op == opcode::broadcast_in_dim; }
  static constexpr int forward = 3, backward = 2;  // backward first: it avoids communication on the larger shape
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { broadcast_rule(g, n, r); }
};

/// A new operator is one file and one entry here.
using operator_families = boost::mp11::mp_list<source_family, elementwise_family, transpose_family, reshape_family,
                                               einsum_family, reduce_family, broadcast_family>;
inline constexpr int completion_rounds = 4;

/// Calls `f` with the family of `op`.
template <class F>
constexpr void with_family(opcode op, F&& f) {
  boost::mp11::mp_for_each<operator_families>([&](auto family) {
    if (family.owns(op)) f(family);
  });
}

constexpr void rule_of(const graph& g, const node& n, op_rule& rule) {
  with_family(n.op, [&](auto family) { family.rule(g, n, rule); });
}

/// Every opcode belongs to exactly one family.
constexpr bool each_opcode_has_one_family() {
  for (int op = 0; op < opcode_count; ++op) {
    int owners = 0;
    with_family(static_cast<opcode>(op), [&owners](auto) { ++owners; });
    if (owners != 1) return false;
  }
  return true;
}
static_assert(each_opcode_has_one_family());

}  // namespace gspmd::detail
