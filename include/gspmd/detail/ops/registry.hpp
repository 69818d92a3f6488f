// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/detail/ops/einsum.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/local.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/ops/regions.hpp"
#include "gspmd/detail/ops/reshaping.hpp"
#include "gspmd/detail/ops/sources.hpp"

/// What the passes know of the operators: one family per entry of one list.
///
///   owns(op)     whether the opcode is of this family
///   rule         how the dims of operands and result correspond
///   uniform        whether all tensors have the same dims, one factor each, whatever the rule says of sizes
///   forward, backward   from which round on completion moves shardings through it (GSPMD 3.5; 0 is first)
namespace gspmd::detail {

struct source_family {
  static constexpr bool uniform = true;
  static constexpr bool owns(opcode op) { return op <= opcode::iota; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph&, const node& n, op_rule& r) { uniform_rule(n.shape, r); }
};
struct elementwise_family {
  static constexpr bool uniform = true;
  static constexpr bool owns(opcode op) { return is_elementwise(op) || op == opcode::reshard || op == opcode::shard_alike; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph&, const node& n, op_rule& r) { uniform_rule(n.shape, r); }
};
struct transpose_family {
  static constexpr bool uniform = false;
  static constexpr bool owns(opcode op) { return op == opcode::transpose; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { transpose_rule(g, n, r); }
};
struct reshape_family {
  static constexpr bool uniform = false;
  static constexpr bool owns(opcode op) { return op == opcode::reshape; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { reshape_rule(g, n, r); }
};
struct shift_family {  // a split of the shifted dim stays: what lies across the boundaries is exchanged
  static constexpr bool uniform = true;
  static constexpr bool owns(opcode op) { return op == opcode::shift; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph&, const node& n, op_rule& r) { uniform_rule(n.shape, r); }
};
struct einsum_family {
  static constexpr bool uniform = false;
  static constexpr bool owns(opcode op) { return op == opcode::einsum; }
  static constexpr int forward = 1, backward = 1;
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { einsum_rule(g, n, r); }
};
struct reduce_family {
  static constexpr bool uniform = false;
  static constexpr bool owns(opcode op) { return op == opcode::reduce; }
  static constexpr int forward = 1, backward = 1;
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { reduce_rule(g, n, r); }
};
struct broadcast_family {
  static constexpr bool uniform = false;
  static constexpr bool owns(opcode op) { return op == opcode::broadcast_in_dim; }
  static constexpr int forward = 3, backward = 2;  // backward first: it avoids communication on the larger shape
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { broadcast_rule(g, n, r); }
};

struct region_family {  // a carried value and what follows it are sharded alike: completion goes round the loop to a fixed point
  static constexpr bool uniform = true;
  static constexpr bool owns(opcode op) { return op >= opcode::loop && op <= opcode::otherwise; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph&, const node& n, op_rule& r) { uniform_rule(n.shape, r); }
};
struct cond_result_family {
  static constexpr bool uniform = false;
  static constexpr bool owns(opcode op) { return op == opcode::cond_result; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph&, const node& n, op_rule& r) { cond_result_rule(n, r); }
};
struct row_family {
  static constexpr bool uniform = false;
  static constexpr bool owns(opcode op) { return op == opcode::dynamic_index || op == opcode::dynamic_update; }
  static constexpr int forward = 0, backward = 0;
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { row_rule(g, n, r); }
};

struct local_family {
  static constexpr bool uniform = false;
  static constexpr bool owns(opcode op) { return op == opcode::local_op; }
  static constexpr int forward = 1, backward = 1;
  static constexpr void rule(const graph& g, const node& n, op_rule& r) { local_op_rule(g, n, r); }
};

/// A new operator is one file and one entry here.
using operator_families =
    boost::mp11::mp_list<source_family, elementwise_family, transpose_family, reshape_family, shift_family, einsum_family,
                         reduce_family, broadcast_family, region_family, cond_result_family, row_family, local_family>;
inline constexpr int completion_rounds = 4;

inline constexpr std::size_t family_count = boost::mp11::mp_size<operator_families>::value;

/// What is looked up per opcode: which family it has, and the family's constants.
struct operator_facts {
  std::uint8_t family = 0;
  std::uint8_t owners = 0;
  std::int8_t forward = 0;
  std::int8_t backward = 0;
  bool uniform = false;
};
struct facts_table {
  operator_facts of[opcode_count]{};  // not std::array: a pass asks for every operator, and each call counts
};
inline constexpr facts_table facts_by_opcode = [] {
  facts_table table;
  for (int op = 0; op < opcode_count; ++op) {
    auto& entry = table.of[op];
    boost::mp11::mp_for_each<boost::mp11::mp_iota_c<family_count>>([&](auto index) {
      using family = boost::mp11::mp_at_c<operator_families, index>;
      if (!family::owns(static_cast<opcode>(op))) return;
      entry.family = static_cast<std::uint8_t>(index);
      entry.forward = family::forward;
      entry.backward = family::backward;
      entry.uniform = family::uniform;
      ++entry.owners;
    });
  }
  return table;
}();
constexpr const operator_facts& facts_of(opcode op) { return facts_by_opcode.of[static_cast<int>(op)]; }

constexpr void rule_of(const graph& g, const node& n, op_rule& rule) {
  boost::mp11::mp_with_index<family_count>(facts_of(n.op).family,
                                           [&](auto index) { boost::mp11::mp_at_c<operator_families, index>::rule(g, n, rule); });
}

/// Every opcode belongs to exactly one family.
constexpr bool each_opcode_has_one_family() {
  for (const auto& entry : facts_by_opcode.of)
    if (entry.owners != 1) return false;
  return true;
}
static_assert(each_opcode_has_one_family());

}  // namespace gspmd::detail
