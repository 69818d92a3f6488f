// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/contraction_plan.hpp"
#include "gspmd/detail/ir/contraction_planner.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The largest and the smallest of nothing lie beyond a narrow type.
constexpr bool has_ends(monoid kind) { return kind == monoid::maximum || kind == monoid::minimum; }

/// The functions by which an operator's `lower` adds its steps. Whatever a step reads is computed before it. The pass that lowers is behind
/// it (passes/lower/lowering.hpp): operators know no pass.
class lowering {
 public:
  const graph& g;
  plan& out;

  [[nodiscard]] constexpr const node& node_of(const instruction& op) const { return g.nodes[static_cast<std::size_t>(op.node)]; }
  [[nodiscard]] virtual constexpr const local_value& value(int v) const = 0;
  [[nodiscard]] virtual constexpr std::int64_t bytes_of(const instruction& op) const = 0;
  virtual constexpr int add_value(const local_value& v) = 0;
  /// Only the device knows how much of dim `dim` of value `v` it holds, and where: the kernel gets it under `index`.
  virtual constexpr void add_bound(plan_step& s, int index, int v, int dim) = 0;
  /// The step of a kernel, by the number of its description.
  virtual constexpr plan_step& add_step(kernel_id kernel, const instruction& op, int spec, const vec<int>& operands,
                                        const vec<int>& results) = 0;
  /// The number of a kernel's description in the plan.
  template <class Spec>
  constexpr int entry(const Spec& spec) {
    return entry_of(table_of<Spec>(out), spec);
  }
  virtual constexpr int planned(const contraction& c) = 0;

  /// The operator that makes a value, if it waits for a loop to be computed in and one step alone reads it; null if not.
  [[nodiscard]] virtual constexpr const instruction* waiting(int v) const = 0;
  [[nodiscard]] virtual constexpr bool lies_in_memory(int v) const = 0;
  /// Whether another operator like this one reads `v`, and waits or comes later: one loop may serve both. Not of a value that many read.
  [[nodiscard]] virtual constexpr bool is_read_alike(const instruction& op, int v) const = 0;
  /// Nobody computes a waiting value: its reader does without.
  virtual constexpr void forget(int v) = 0;

  /// Returns a value of one element that all elements of `v` are equal to, if `v` is a constant or one element stretched, and waits; -1: there
  /// is none. No elements of a type of the user's own, and no complex ones, which kernels take as parts.
  virtual constexpr int one_element(const instruction& op, int v) = 0;

  /// The combination of what an operator gives with a value that is there before; -1: there is none.
  struct combination {
    int with = -1, result = -1;
  };
  /// Returns what the next operator makes, if it is `combine`, it alone reads what `op` gives, and it computes element by element on what
  /// lies alike: the step of `op` makes that then.
  virtual constexpr combination combined_next(const instruction& op, const operator_code& combine) = 0;

  /// A value that kernels compute with: `v` itself, or of a narrow type its elements as the type that they are computed as.
  virtual constexpr int widened(const instruction& op, int v) = 0;
  /// Where a kernel leaves what becomes `result` by narrowed(): the result itself, or of a narrow type a wider value.
  virtual constexpr int wide_result(int result) = 0;
  /// `saturates`: an integer that is out of range becomes the nearest one that is not.
  virtual constexpr void narrowed(const instruction& op, int from, int result, bool saturates = false) = 0;
  /// A complex value x as [2, ...]: x, and after it i x. See add_both_turns.
  virtual constexpr int both_turns(const instruction& op, int x) = 0;

  /// Leaves a transpose, of which dim `d` is dim permutation[d] of the operand, to an all_to_all: that which brings its operand and nobody
  /// else reads, or that which alone reads its result. False: it has to be done.
  virtual constexpr bool transposes_on_the_way(const instruction& op, const inline_vec<std::int8_t, max_rank>& permutation) = 0;
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
    auto& s = add_step(id_of<kernels::permute>, op, entry(spec), {operand}, {result});
    if (by_parts) s.type = part_of(type);
  }
  /// Another order of the dims of a shard, which are `in` whatever the value says of them.
  constexpr void permute_as(const instruction& op, int operand, int result, const permutation_spec& spec) {
    add_step(id_of<kernels::permute>, op, entry(spec), {operand}, {result});
  }
  virtual constexpr void reduce(const instruction& op, int operand, int result, dim_mask dims, monoid kind) = 0;
  /// The same of an operand that the operator reads nowhere else: the loop that computes it may reduce it, and with it others that read
  /// it.
  virtual constexpr void reduce_once(const instruction& op, int operand, int result, dim_mask dims, monoid kind) = 0;
  /// The elements of a value as its `strides` along the dims of the result find them.
  virtual constexpr void copy(const instruction& op, int from, const extents& strides) = 0;
  /// A movement of an operator that consists of them; one after the first one goes on with what the last one left.
  virtual constexpr void move(const instruction& op) = 0;

  /// A value that an operator reads in the place of its operand, and by dim where in it index 0 of the operator's own tile is.
  struct placed_tile {
    int value = 0;
    extents at;
  };
  /// Returns the tile that an operator reads of operand k: one that a movement fills for all operators that read it, or the shard itself.
  virtual constexpr placed_tile tile(const instruction& op, int k) = 0;

  /// The same elements in another layout.
  virtual constexpr int redistribute(const instruction& op, int from, const sharding& layout) = 0;
  /// Moves the elements of a value by a map and returns the result, of the shape and splits of `v`.
  virtual constexpr int mapped(const instruction& op, int from, local_value v, const index_map& map) = 0;
  /// A value that is split along `dim`, whole along it: an all_gather.
  virtual constexpr int gather_parts(const instruction& op, int from, int dim) = 0;
  /// Data that moves or is reduced for an operator.
  virtual constexpr void communicate(const instruction& op) = 0;

  static constexpr vec<int> all_operands(const instruction& op) { return {op.operands.begin(), op.operands.end()}; }

 protected:
  constexpr lowering(const graph& program, plan& plan) : g(program), out(plan) {}
  ~lowering() = default;
};

/// Adds the step of a kernel, by its description or the description's number in the plan; kernels without one have 0.
template <class K>
constexpr plan_step& add_step(lowering& l, const instruction& op, int spec, const vec<int>& operands, const vec<int>& results) {
  return l.add_step(id_of<K>, op, spec, operands, results);
}
template <class K>
constexpr plan_step& add_step(lowering& l, const instruction& op, const typename mp11::mp_first<typename K::tables>::entry& spec,
                              const vec<int>& operands, const vec<int>& results) {
  return add_step<K>(l, op, l.entry(spec), operands, results);
}

}  // namespace gspmd::detail
