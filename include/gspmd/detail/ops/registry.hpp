// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/composed.hpp"
#include "gspmd/detail/ops/concatenate.hpp"
#include "gspmd/detail/ops/convolution.hpp"
#include "gspmd/detail/ops/einsum.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/fold.hpp"
#include "gspmd/detail/ops/further_result.hpp"
#include "gspmd/detail/ops/gather.hpp"
#include "gspmd/detail/ops/ghost_blocks.hpp"
#include "gspmd/detail/ops/local.hpp"
#include "gspmd/detail/ops/local_view.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/pad.hpp"
#include "gspmd/detail/ops/placed.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/ops/reduce_window.hpp"
#include "gspmd/detail/ops/regions.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/detail/ops/reshard.hpp"
#include "gspmd/detail/ops/reverse.hpp"
#include "gspmd/detail/ops/roll.hpp"
#include "gspmd/detail/ops/rows.hpp"
#include "gspmd/detail/ops/scan.hpp"
#include "gspmd/detail/ops/scatter.hpp"
#include "gspmd/detail/ops/select_and_scatter.hpp"
#include "gspmd/detail/ops/shift.hpp"
#include "gspmd/detail/ops/slice.hpp"
#include "gspmd/detail/ops/sort.hpp"
#include "gspmd/detail/ops/source_ops.hpp"
#include "gspmd/detail/ops/transition.hpp"
#include "gspmd/detail/ops/transpose.hpp"
#ifdef GSPMD_TEST_OPERATORS_HEADER
#include GSPMD_TEST_OPERATORS_HEADER
#endif

/// What the passes ask of operators, by opcode.
namespace gspmd::detail {

/// Those whose opcodes are enumerated, then the listed ones.
using operators = boost::mp11::mp_append<
    boost::mp11::mp_list<parameter_op, source_op, elementwise_op, region_op, cond_result_op, further_result_op>,
    boost::mp11::mp_transform<listed_type, listed_operators>>;
inline constexpr std::size_t operator_count = boost::mp11::mp_size<operators>::value;

template <class... O>
constexpr bool are_checked(boost::mp11::mp_list<O...>) {
  return (checked_operator<O>::holds && ...);
}
static_assert(are_checked(operators{}));

/// The facts that are constants of an operator, and functions to ask for the others: a pass asks for every operator, and each call
/// counts against the limits of an evaluation.
struct operator_facts {
  std::uint8_t number = 0;  // in `operators`
  std::uint8_t owners = 0;
  origin made = origin::shards;
  realisation runs = realisation::steps;
  completion_rounds completes;
  bool uniform = false;
  bool keeps_slices = false;
  bool composes = false;
  bool may_cut_axes = false;
  replication_words replication;
  void (*rule)(const graph&, const node&, op_rule&) = nullptr;
  operator_class (*meets)(const node&, monoid) = nullptr;
  dim_mask (*exchanges)(const node&) = nullptr;
  int (*reads)(const node&) = nullptr;
  bool (*is_made_again)(const node&) = nullptr;
  bool (*may_go_round_ring)(const node&) = nullptr;
  int (*movements)(const node&) = nullptr;
  index_map (*map)(const graph&, const node&, int movement) = nullptr;
  int (*tiles)(const node&) = nullptr;
  index_map (*tile)(const graph&, const node&, int operand) = nullptr;
  std::int64_t (*flops)(const graph&, const mesh_shape&, const local_program&, const instruction&) = nullptr;
  scalar_op (*in_loop)(const graph&, const node&) = nullptr;
  dim_places (*lies_along)(const graph&, const node&) = nullptr;
  void (*name_dim)(text&, const graph&, const node&, int operand, int dim) = nullptr;
};
template <class O>
constexpr void take_facts(operator_facts& facts, std::uint8_t number) {
  const auto owners = static_cast<std::uint8_t>(facts.owners + 1);
  facts = {number,          owners,         O::made,  O::runs,  O::completes, O::uniform, O::keeps_slices,  O::composes,
           O::may_cut_axes, O::replication, O::rule,  O::meets, O::exchanges, O::reads,   O::is_made_again, O::may_go_round_ring,
           O::movements,    O::map,         O::tiles, O::tile,  O::flops,     O::in_loop, O::lies_along,    O::name_dim};
}

/// What reports ask of an operator. It is a table of its own: a program that is planned while compiling and prints its plan would have
/// the rules of all operators as machine code, if one table held them beside its texts.
struct operator_words {
  origin made = origin::shards;
  realisation runs = realisation::steps;
  void (*describe)(std::string&, const plan_view&, const plan_step*) = nullptr;
};
template <class O>
constexpr void take_facts(operator_words& words, std::uint8_t) {
  words = {O::made, O::runs, O::describe};
}

template <class Facts>
struct table_by_opcode {
  Facts of[opcode_count]{};  // not std::array: see above
  constexpr table_by_opcode() {
    boost::mp11::mp_for_each<boost::mp11::mp_iota_c<operator_count>>([&](auto index) {
      using O = boost::mp11::mp_at_c<operators, index>;
      for (int op = 0; op < opcode_count; ++op)
        if (O::owns(static_cast<opcode>(op))) take_facts<O>(of[op], static_cast<std::uint8_t>(index));
    });
  }
};
inline constexpr table_by_opcode<operator_facts> facts_by_opcode;
inline constexpr table_by_opcode<operator_words> words_by_opcode;
constexpr const operator_facts& facts_of(opcode op) { return facts_by_opcode.of[static_cast<int>(op)]; }
constexpr const operator_words& words_of(opcode op) { return words_by_opcode.of[static_cast<int>(op)]; }

constexpr bool each_opcode_has_one_operator() {
  for (const auto& entry : facts_by_opcode.of)
    if (entry.owners != 1) return false;
  return true;
}
static_assert(each_opcode_has_one_operator());

/// Calls `body` with the operator that owns `op`, as a std::type_identity.
template <class Body>
constexpr void with_operator(opcode op, Body&& body) {
  boost::mp11::mp_with_index<operator_count>(
      facts_of(op).number, [&](auto index) { body(std::type_identity<boost::mp11::mp_at_c<operators, index>>{}); });
}

constexpr void rule_of(const graph& g, const node& n, op_rule& rule) { facts_of(n.op).rule(g, n, rule); }

/// Whether one movement may take the place of an operator: from any sharding of its operand to any of its result.
constexpr bool may_be_moved(const graph& g, const node& n) {
  return n.operands.count == 1 && facts_of(n.op).movements(n) == 0 && facts_of(n.op).map(g, n, 0).reshapes;
}
/// Whether it may between these. Every axis that splits the operand splits the result: else the operand is gathered, which is no
/// business of the operator.
constexpr bool may_be_moved(const graph& g, const mesh_shape& mesh, const node& n, const sharding& operand,
                            const sharding& result) {
  return may_be_moved(g, n) && (operand.split_axes() & ~result.split_axes()) == 0 &&
         reshape_exchange(mesh, operand_of(g, n, 0).shape, operand, n.shape, result).is_possible();
}
/// Of how many movements an operator consists; `is_moved`: it was chosen to be one.
constexpr int movements_of(const node& n, bool is_moved) { return is_moved ? 1 : facts_of(n.op).movements(n); }

/// What a movement of an operator exchanges between operands and a result that are sharded so.
constexpr map_traffic traffic_of(const graph& g, const mesh_shape& mesh, const node& n, int movement, const sharding& operand,
                                 const sharding& result) {
  return traffic_of(mesh, operand_of(g, n, movement).shape, operand, n.shape, result, facts_of(n.op).map(g, n, movement));
}

/// The map to the tiles that an operator reads of operand k, of shape `from` and sharding `s`; without dims: it reads the shards.
constexpr index_map needed_tile(const graph& g, const mesh_shape& mesh, const node& n, int k, const extents& from,
                                const sharding& s) {
  const auto& facts = facts_of(n.op);
  if (k >= facts.tiles(n)) return {};
  const index_map map = facts.tile(g, n, k);
  return map.is_the_shard(mesh, from, s) ? index_map{} : map;
}

}  // namespace gspmd::detail
