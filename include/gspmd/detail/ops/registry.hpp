// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/further_result.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/regions.hpp"
#include "gspmd/detail/ops/source_ops.hpp"

/// The tables with the facts of each operator, for passes.
namespace gspmd::detail {

/// A table from enumerated opcodes to the facts of their operators. An operator may own several opcodes.
template <class Entry>
class table_by_opcode {
 public:
  template <class Make>
  constexpr explicit table_by_opcode(Make make) {
    add<parameter_op>(make);
    add<source_op>(make);
    add<region_op>(make);
    add<cond_result_op>(make);
    add<further_result_op>(make);
  }
  Entry of[enumerated_count]{};

 private:
  template <class O, class Make>
  constexpr void add(Make make) {
    for (int op = 0; op < enumerated_count; ++op)
      if (O::owns(static_cast<opcode>(op))) of[op] = make(std::type_identity<O>{});
  }
};
inline constexpr table_by_opcode<operator_words> words_by_opcode([]<class O>(std::type_identity<O>) { return words_for<O>; });
inline constexpr table_by_opcode<operator_facts> facts_by_opcode([]<class O>(std::type_identity<O>) { return facts_for<O>; });

constexpr const operator_facts& facts_of(const operator_code& op) {
  return op.code == opcode::listed ? static_cast<const operator_facts&>(*op.listed)
                                   : facts_by_opcode.of[static_cast<int>(op.code)];
}
constexpr const operator_facts& facts_of(const planned_code&) = delete;
constexpr const operator_facts& facts_of(const scalar_code&) = delete;
constexpr const operator_words& words_of(const planned_code& op) {
  if (is_elementwise(op)) return words_for<elementwise_op>;
  return op.code == opcode::listed ? static_cast<const operator_words&>(*op.listed)
                                   : words_by_opcode.of[static_cast<int>(op.code)];
}
/// Returns the code of a node's operator, in the form that plans store.
constexpr planned_code in_words(const operator_code& op) {
  return op.code == opcode::listed ? planned_code(*facts_of(op).in_plan) : planned_code(op.code);
}

constexpr bool each_opcode_has_one_operator() {
  for (int op = 0; op < enumerated_count; ++op) {
    const auto code = static_cast<opcode>(op);
    const int owners = (parameter_op::owns(code) ? 1 : 0) + (source_op::owns(code) ? 1 : 0) + (region_op::owns(code) ? 1 : 0) +
                       (cond_result_op::owns(code) ? 1 : 0) + (further_result_op::owns(code) ? 1 : 0);
    if (owners != 1) return false;
  }
  return true;
}
static_assert(each_opcode_has_one_operator());

constexpr void rule_of(const graph& g, const node& n, op_rule& rule) {
  rule.results = n.results;
  facts_of(n.op).rule(g, n, rule);
}

/// Returns true if one movement can replace an operator: from any sharding of its operand to any sharding of its
/// result.
constexpr bool may_be_moved(const graph& g, const node& n) {
  return n.operands.count == 1 && facts_of(n.op).movements(n) == 0 && facts_of(n.op).map(g, n, 0).reshapes;
}
/// Returns true if one movement can replace an operator between these shardings. All axes that split the operand must
/// split the result: otherwise the operand must be gathered first, which is no movement of the operator.
constexpr bool may_be_moved(const graph& g, const mesh_shape& mesh, const node& n, const sharding& operand,
                            const sharding& result) {
  return may_be_moved(g, n) && (operand.split_axes() & ~result.split_axes()) == 0 &&
         reshape_exchange(mesh, operand_of(g, n, 0).shape, operand, n.shape, result).is_possible();
}
/// Returns the number of movements that an operator consists of. `is_moved`: a movement replaces the operator.
constexpr int movements_of(const node& n, bool is_moved) { return is_moved ? 1 : facts_of(n.op).movements(n); }

/// Returns the traffic of a movement of an operator between an operand and a result with these shardings.
constexpr map_traffic traffic_of(const graph& g, const mesh_shape& mesh, const node& n, int movement, const sharding& operand,
                                 const sharding& result) {
  return traffic_of(mesh, operand_of(g, n, movement).shape, operand, n.shape, result, facts_of(n.op).map(g, n, movement));
}

/// Returns the map to the tiles that an operator reads of operand k, for its shape `from` and sharding `s`. Returns a
/// map without dims if the operator reads the shards.
constexpr index_map needed_tile(const graph& g, const mesh_shape& mesh, const node& n, int k, const extents& from,
                                const sharding& s) {
  const auto& facts = facts_of(n.op);
  if (k >= facts.tiles(n)) return {};
  const index_map map = facts.tile(g, n, k);
  return map.is_the_shard(mesh, from, s) ? index_map{} : map;
}

}  // namespace gspmd::detail
