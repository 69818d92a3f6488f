// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/contraction_plan.hpp"
#include "gspmd/detail/ir/contraction_planner.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

struct step_state;
class loop_fuser;

/// The largest and the smallest of nothing lie beyond a narrow type.
constexpr bool has_ends(monoid kind) { return kind == monoid::maximum || kind == monoid::minimum; }

/// What an operator's `lower` adds its steps with. Whatever a step reads is computed before it. What these functions do stands in
/// passes/lower/lowering.hpp.
class lowering {
 public:
  constexpr lowering(step_state& state, loop_fuser& loops);

  const graph& g;
  plan& out;

  [[nodiscard]] constexpr const node& node_of(const instruction& op) const { return g.nodes[static_cast<std::size_t>(op.node)]; }
  [[nodiscard]] constexpr const local_value& value(int v) const;
  [[nodiscard]] constexpr std::int64_t bytes_of(const instruction& op) const;
  constexpr int add_value(const local_value& v);
  /// Only the device knows how much of dim `dim` of value `v` it holds, and where: the kernel is told under `index`.
  constexpr void add_bound(plan_step& s, int index, int v, int dim);
  /// The step of a kernel, by the number of its description.
  constexpr plan_step& add_step(action what, const instruction& op, int spec, const vec<int>& operands, const vec<int>& results);
  /// The number of a kernel's description in the plan.
  template <class Spec>
  constexpr int entry(const Spec& spec) {
    return entry_of(table_of<Spec>(out), spec);
  }
  constexpr int planned(const contraction& c);

  /// The operator that makes a value, if it waits for a loop to be computed in and one step alone reads it; null if not.
  [[nodiscard]] constexpr const instruction* waiting(int v) const;
  [[nodiscard]] constexpr bool lies_in_memory(int v) const;
  /// Whether another operator like this one reads `v`, and waits or comes later: one loop may serve both. Not of a value that many read.
  [[nodiscard]] constexpr bool is_read_alike(const instruction& op, int v) const;
  /// Nobody computes a waiting value: its reader does without.
  constexpr void forget(int v);

  /// A value that kernels compute with: `v` itself, or of a narrow type its elements as the type that they are computed as.
  constexpr int widened(const instruction& op, int v);
  /// Where a kernel leaves what becomes `result` by narrowed(): the result itself, or of a narrow type a wider value.
  constexpr int wide_result(int result);
  /// `saturates`: an integer that is out of range becomes the nearest one that is not.
  constexpr void narrowed(const instruction& op, int from, int result, bool saturates = false);
  /// A complex value x as [2, ...]: x, and after it i x. See add_both_turns.
  constexpr int both_turns(const instruction& op, int x);

  template <class Permutation>
  constexpr void permute(const instruction& op, int operand, int result, const Permutation& permutation) {
    permutation_spec spec;
    spec.in = value(operand).local;
    for (const auto d : permutation) spec.permutation.push_back(static_cast<std::int8_t>(d));
    const dtype type = value(operand).type;
    const bool by_parts = is_complex(type);
    if (by_parts) {
      spec.permutation.push_back(static_cast<std::int8_t>(spec.in.count));
      spec.in.push_back(2);
    }
    auto& s = add_step(action::permute, op, entry(spec), {operand}, {result});
    if (by_parts) s.type = part_of(type);
  }
  /// Another order of the dims of a shard, which are `in` whatever the value says of them.
  constexpr void permute_as(const instruction& op, int operand, int result, const permutation_spec& spec) {
    add_step(action::permute, op, entry(spec), {operand}, {result});
  }
  constexpr void reduce(const instruction& op, int operand, int result, dim_mask dims, monoid kind);
  /// The same of an operand that the operator reads nowhere else: the loop that computes it may reduce it, and with it others that read
  /// it.
  constexpr void reduce_once(const instruction& op, int operand, int result, dim_mask dims, monoid kind);
  /// The elements of a value as its `strides` along the dims of the result find them.
  constexpr void copy(const instruction& op, int from, const extents& strides);
  /// A movement of an operator that consists of them; one after the first one goes on with what the last one left.
  constexpr void move(const instruction& op);

  /// A value that an operator reads in the place of its operand, and by dim where in it index 0 of the operator's own tile is.
  struct placed_tile {
    int value = 0;
    extents at;
  };
  /// What an operator reads of operand k: a tile that a movement fills for all that read of it, or the shard itself.
  constexpr placed_tile tile(const instruction& op, int k);

  /// The same elements in another layout.
  constexpr int redistribute(const instruction& op, int from, const sharding& layout);
  /// What a map makes of a value: `v`, in the same splits.
  constexpr int mapped(const instruction& op, int from, local_value v, const index_map& map);
  /// A value that is split along `dim`, whole along it: an all_gather.
  constexpr int gather_parts(const instruction& op, int from, int dim);
  /// Data that moves or is reduced for an operator.
  constexpr void communicate(const instruction& op);

  static constexpr vec<int> all_operands(const instruction& op) { return {op.operands.begin(), op.operands.end()}; }

 private:
  step_state& state_;
  loop_fuser& loops_;
};

}  // namespace gspmd::detail
