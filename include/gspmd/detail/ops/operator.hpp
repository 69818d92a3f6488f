// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ir/meet.hpp"
#include "gspmd/detail/ir/operator_words.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ir/rule.hpp"
#include "gspmd/detail/ops/lowering.hpp"

namespace gspmd::detail {
class gradient_builder;  // ops/gradient_builder.hpp
}

/// The facts that an operator states: an operator is a struct that defines each fact below, without defaults. The
/// passes query these facts and name no operator. `complete_operator` rejects a struct that lacks a fact.
namespace gspmd::detail {

/// The first round of completion that propagates shardings through an operator (GSPMD 3.5). Round 0 is the first.
struct completion_rounds {
  std::int8_t forward = 0;
  std::int8_t backward = 0;
};
inline constexpr int completion_round_count = 4;

/// The words of an error message about an operand that must be gathered, because the operator does not support its
/// split.
struct replication_words {
  std::string_view who;   // empty: the operator's name
  std::string_view does;  // the action of the operator on the operand; empty: the operator does not support that split
  std::string_view remedy;
};
inline constexpr replication_words ordinary_replication{
    "", "", "reshard the operand to a sharding that the operator keeps, or write allow_replication(...) around it"};

using dim_places = inline_vec<std::int8_t, max_rank>;

/// The effect of vmap on an operator. vmap adds one leading dim to the tensors of the operator. The fact states which
/// attributes number dims, and which tensors may lack the new dim. In the rule, the new dim is a batch dim.
struct leading_dim {
  enum class way : std::uint8_t {
    numbers,   // `count` attributes number dims of all tensors: the first at `first`, then each `step`-th one
    in_front,  // all attributes number dims of the result, and the new dim is added before these dims
    letters,   // the attributes begin with the letters of operands and result; an operand may lack the dim
    indexed,  // the attributes are an `indexing`: operand `first` has the indices, operand `step` has the slices (-1: the result)
    row,      // operand 0 has rows along its dim 0, and the last operand is the number of a row
    states,   // the attributes are a `state_change`
    first,    // no attribute numbers a dim; operand 0 gets the dim, the other operands are unchanged
    refused,  // not supported: the operator is written for a fixed set of dims
  };
  way is = way::numbers;
  std::int8_t first = 0, step = 1, count = 0;
  std::int8_t most = max_rank;  // the largest number of dims of a tensor
};

/// A collective among the steps of an operator, and the bytes that one device sends in it.
struct own_collective {
  collective_kind what = collective_kind::all_gather;
  axis_mask axes = 0;
  std::int64_t bytes = 0;
};
using own_collectives = vec<own_collective> (*)(const graph&, const mesh_shape&, const node&, const sharding&);

// clang-format off
/// The facts, one entry each:
///
///   name                        the name in messages
///   made, runs                  see origin and realisation
///   completes                   see completion_rounds
///   uniform                     all tensors have the same dims, with one factor for each dim, even if extents differ
///   rule(g, n, rule)            the correspondence of the dims of operands and results: one map for each operand, then
///                               one for each result. If a factor leaves a result partial, it also sets
///                               `rule.reduced_by`, which has no default
///   meets(n, monoid)            which operands may be partial with this monoid, and which are selectors (ir/meet.hpp)
///   exchanges(n)                the dims of the result along which the operator's own steps exchange results between
///                               parts
///   sends(g, mesh, n, s)        the collectives among the operator's own steps if its first operand has the sharding
///                               `s`; null: none
///   reads(n)                    the number of operands that are read; only completion uses the remaining operands
///   keeps_slices                a slice of the result requires the same slice of the operands, and nothing else
///   is_made_again(n)            a user may recompute the value in another sharding, if moving the operand sends fewer
///                               bytes
///   may_go_round_ring(n)        an operand may rotate around the ring shard by shard instead of being gathered
///   movements(n)                the number of movements between shards that the operator consists of; 0: none
///   map(g, n, k)                the map of movement k from the elements of operand k to the elements of the result. An
///                               operator without movements returns a map that reshapes if one movement may replace the
///                               operator
///   composes                    the operator is one movement of one operand, as in mapped_op; consecutive ones can
///                               become one movement
///   tiles(n)                    the number of leading operands that are read as tiles, which are shards with their
///                               halos; 0: none
///   tile(g, n, k)               the map to the tiles of operand k; each dim of the map has a tile
///   flops(g, mesh, p, op)       the arithmetic of the device that computes most
///   in_loop(g, n)               the computation for each element in a loop; for sources and for operators that run as
///                               loops
///   lies_along(g, n)            for an operand that is read through strides: by dim of the operand, the dim of the
///                               result; -1 if it is stretched
///   name_dim(t, g, n, k, dim)   appends the user's name of a dim of operand k to a message
///   replication                 see replication_words
///   leading                     see leading_dim
///   gradient(b, n)              sends the operands their gradients; also defined for operators without a gradient
///   lower(l, op)                adds the steps, if the operator runs as steps
///   describe(t, plan, step)     appends to a line of `explain` the details that the name lacks; `step` is null if
///                               there is no step
template <class O>
concept complete_operator = requires(const graph& g, const node& n, const mesh_shape& mesh, const local_program& p, const instruction& op,
                                     const plan_view& plan, const plan_step* step, op_rule& rule, text& t, std::string& s,
                                     gradient_builder& b, lowering& l) {
  requires std::same_as<decltype(O::name), const char* const>;
  requires std::same_as<decltype(O::made), const origin>;
  requires std::same_as<decltype(O::runs), const realisation>;
  requires std::same_as<decltype(O::completes), const completion_rounds>;
  requires std::same_as<decltype(O::uniform), const bool>;
  requires std::same_as<decltype(O::keeps_slices), const bool>;
  requires std::same_as<decltype(O::composes), const bool>;
  requires std::same_as<decltype(O::replication), const replication_words>;
  requires std::same_as<decltype(O::leading), const leading_dim>;
  { O::rule(g, n, rule) } -> std::same_as<void>;
  { O::meets(n, monoid::add) } -> std::same_as<operator_class>;
  { O::exchanges(n) } -> std::same_as<dim_mask>;
  { O::sends } -> std::convertible_to<own_collectives>;
  { O::reads(n) } -> std::same_as<int>;
  { O::is_made_again(n) } -> std::same_as<bool>;
  { O::may_go_round_ring(n) } -> std::same_as<bool>;
  { O::movements(n) } -> std::same_as<int>;
  { O::map(g, n, 0) } -> std::same_as<index_map>;
  { O::tiles(n) } -> std::same_as<int>;
  { O::tile(g, n, 0) } -> std::same_as<index_map>;
  { O::flops(g, mesh, p, op) } -> std::same_as<std::int64_t>;
  { O::in_loop(g, n) } -> std::same_as<scalar_op>;
  { O::lies_along(g, n) } -> std::same_as<dim_places>;
  { O::name_dim(t, g, n, 0, 0) } -> std::same_as<void>;
  { O::gradient(b, n) } -> std::same_as<void>;
  { O::lower(l, op) } -> std::same_as<void>;
  { O::describe(s, plan, step) } -> std::same_as<void>;
};
// clang-format on

// Common facts have names, and operators use them as bases. No fact has a default: an operator without a base states
// the facts itself.

/// For operators that own enumerated opcodes through `owns(op)`. Messages use the names of the opcodes.
struct named_by_opcode {
  static constexpr const char* name = "";
};
struct without_exchange {
  static constexpr dim_mask exchanges(const node&) { return 0; }
  static constexpr own_collectives sends = nullptr;
};
/// Reads all operands in place. Does not change axes, the plans of its users, or messages.
struct plain_operator : without_exchange {
  static constexpr replication_words replication = ordinary_replication;
  static constexpr int reads(const node& n) { return n.operands.count; }
  static constexpr bool is_made_again(const node&) { return false; }
  static constexpr bool may_go_round_ring(const node&) { return false; }
};
/// All tensors have the dims of the result.
struct same_dims {
  static constexpr bool uniform = true;
  static constexpr bool keeps_slices = true;
  static constexpr void rule(const graph&, const node& n, op_rule& r) { uniform_rule(n.shape, r); }
};
struct reduced_first {
  static constexpr operator_class meets(const node&, monoid) { return {}; }
};
/// Moves or repeats elements, so all operands may be partial with any monoid.
struct linear_in_all {
  static constexpr operator_class meets(const node&, monoid) { return {partial_class::all}; }
};
struct without_movements {
  static constexpr bool composes = false;
  static constexpr int movements(const node&) { return 0; }
  static constexpr index_map map(const graph&, const node&, int) { return {}; }
};
struct reads_shards {
  static constexpr int tiles(const node&) { return 0; }
  static constexpr index_map tile(const graph&, const node&, int) { return {}; }
};
struct without_arithmetic {
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program&, const instruction&) { return 0; }
};
struct outside_of_loops {
  static constexpr scalar_op in_loop(const graph&, const node&) { return {}; }
  static constexpr dim_places lies_along(const graph&, const node&) { return {}; }
};
struct dims_by_number {
  static constexpr void name_dim(text&, const graph&, const node&, int, int) {}
};
struct names_no_dims {
  static constexpr leading_dim leading{};
};

/// Names a value, or begins or ends a body. Has no step of its own.
struct without_steps : reduced_first, without_movements, reads_shards, without_arithmetic, outside_of_loops, dims_by_number {
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr void lower(lowering&, const instruction&) {}
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

/// Checks the facts that are constants. The facts that depend on a node are checked on the first node of each operator
/// in a program (passes/refuse/try_operators.hpp).
template <class O, bool IsComplete = complete_operator<O>>
struct checked_operator {
  static_assert(complete_operator<O>,
                "gspmd: an operator states every fact of complete_operator, in gspmd/detail/ops/operator.hpp: the one named "
                "below is missing");
  static constexpr bool holds = true;
};
template <class O>
struct checked_operator<O, true> {
  static_assert(O::made != origin::shards || O::runs != realisation::steps || !std::is_base_of_v<without_steps, O>,
                "gspmd: an operator's `runs` is realisation::steps and its base without_steps has a `lower` that adds none; "
                "write a `lower` and drop that base");
  static_assert(O::made != origin::shards || (O::runs != realisation::loop && O::runs != realisation::strides) ||
                    !std::is_base_of_v<outside_of_loops, O>,
                "gspmd: an operator's `runs` is realisation::loop or strides and its base outside_of_loops has an `in_loop` that "
                "computes nothing; write `in_loop` and `lies_along` and drop that base");
  static_assert(O::completes.forward >= 0 && O::completes.forward < completion_round_count && O::completes.backward >= 0 &&
                    O::completes.backward < completion_round_count,
                "gspmd: an operator's `completes` names a round and completion has no such round; rounds are 0 to 3");
  static_assert(
      !O::composes || !std::is_base_of_v<without_movements, O>,
      "gspmd: an operator's `composes` is true and its base without_movements has no `map`; write `movements` and `map` "
      "and drop that base");
  static constexpr bool holds = true;
};

/// The facts of an operator as one constant, as the passes read them: the constant facts, and pointers to the
/// functions. Passes read the facts of each operator, and each call counts against the limits of constant evaluation.
struct operator_facts : operator_name {
  const operator_name* in_plan = nullptr;  // identifies the operator in a plan
  origin made = origin::shards;
  realisation runs = realisation::steps;
  completion_rounds completes;
  bool uniform = false;
  bool keeps_slices = false;
  bool composes = false;
  replication_words replication;
  leading_dim leading;
  void (*rule)(const graph&, const node&, op_rule&) = nullptr;
  operator_class (*meets)(const node&, monoid) = nullptr;
  dim_mask (*exchanges)(const node&) = nullptr;
  /// Replaces a test of `sends` for null, which is no constant expression with GCC's -fsanitize=undefined.
  bool has_collectives = false;
  own_collectives sends = nullptr;
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
  void (*gradient)(gradient_builder&, const node&) = nullptr;
  void (*lower)(lowering&, const instruction&) = nullptr;

  constexpr operator_facts() = default;
  template <class O>
  constexpr explicit operator_facts(std::type_identity<O>)
      : operator_name(words_for<O>),
        in_plan(&words_for<O>),
        made(O::made),
        runs(O::runs),
        completes(O::completes),
        uniform(O::uniform),
        keeps_slices(O::keeps_slices),
        composes(O::composes),
        replication(O::replication),
        leading(O::leading),
        rule(O::rule),
        meets(O::meets),
        exchanges(O::exchanges),
        has_collectives(std::is_function_v<decltype(O::sends)>),
        sends(O::sends),
        reads(O::reads),
        is_made_again(O::is_made_again),
        may_go_round_ring(O::may_go_round_ring),
        movements(O::movements),
        map(O::map),
        tiles(O::tiles),
        tile(O::tile),
        flops(O::flops),
        in_loop(O::in_loop),
        lies_along(O::lies_along),
        name_dim(O::name_dim),
        gradient(O::gradient),
        lower(O::lower) {
    static_assert(checked_operator<O>::holds);
  }
};

/// The type of an operator's facts. Argument-dependent lookup finds the overload for elementwise operators
/// (ops/elementwise.hpp).
operator_facts type_of_facts(const void*);
template <class O>
using facts_type = decltype(type_of_facts(static_cast<const O*>(nullptr)));

/// The facts of an operator with its own struct, and the code that its nodes have.
template <class O>
inline constexpr facts_type<O> facts_for{std::type_identity<O>{}};
template <class O>
inline constexpr operator_code code_of{facts_for<O>};

/// Returns operand `k` of a node, as a node.
constexpr const node& operand_of(const graph& g, const node& n, int k) {
  return g.nodes[static_cast<std::size_t>(n.operands[k])];
}

}  // namespace gspmd::detail
