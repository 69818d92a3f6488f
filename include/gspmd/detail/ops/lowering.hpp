// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/contraction_plan.hpp"
#include "gspmd/detail/ir/contraction_planner.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Returns true for maximum and minimum: their identity is outside of the range of a narrow type.
constexpr bool has_ends(monoid kind) { return kind == monoid::max || kind == monoid::min; }

/// The functions that an operator's `lower` calls to add its steps. Values that a step reads are computed before the
/// step. The lowering pass implements this interface (passes/lower/lowering.hpp), so operators do not depend on passes.
class lowering {
 public:
  const graph& g;
  plan& out;

  [[nodiscard]] constexpr const node& node_of(const instruction& op) const { return g.nodes[static_cast<std::size_t>(op.node)]; }
  [[nodiscard]] virtual constexpr const local_value& value(int v) const = 0;
  [[nodiscard]] virtual constexpr std::int64_t bytes_of(const instruction& op) const = 0;
  virtual constexpr int add_value(const local_value& v) = 0;
  /// Adds a bound under `index`: the part of dim `dim` of value `v`. Only the device can compute it, so the kernel
  /// receives it.
  virtual constexpr void add_bound(plan_step& s, int index, int v, int dim) = 0;
  /// Adds the step of a kernel, whose description has the number `spec`.
  virtual constexpr plan_step& add_step(kernel_id kernel, const instruction& op, int spec, const vec<int>& operands,
                                        const vec<int>& results) = 0;
  /// Returns the number of a kernel's description in the plan, and adds it if necessary.
  template <class Spec>
  constexpr int entry(const Spec& spec) {
    return entry_of(table_of<Spec>(out), spec);
  }
  virtual constexpr int planned(const contraction& c) = 0;

  /// Returns the operator that makes `v`, if it can still join a loop and only one step reads `v`. Otherwise returns
  /// null.
  [[nodiscard]] virtual constexpr const instruction* waiting(int v) const = 0;
  [[nodiscard]] virtual constexpr bool lies_in_memory(int v) const = 0;
  /// Returns true if another operator like this one reads `v` and is not computed yet, so that one loop can serve both.
  /// Returns false if more than 64 values are computed from `v`.
  [[nodiscard]] virtual constexpr bool is_read_alike(const instruction& op, int v) const = 0;
  /// Drops a waiting value: its user does not need it, so it is not computed.
  virtual constexpr void forget(int v) = 0;

  /// Returns a one-element value, equal to all elements of `v`, if `v` is not computed yet and is a constant or one
  /// broadcast element. Otherwise returns -1. Own types and complex types are not supported, because kernels take
  /// complex elements as parts.
  virtual constexpr int one_element(const instruction& op, int v) = 0;

  /// The combination of an operator's result with an existing value; -1: none.
  struct combination {
    int with = -1, result = -1;
  };
  /// Returns the result of the next operator if this operator is `combine` and the only user of the result of `op`. Its
  /// operands and result must have equal layouts. The step of `op` then also computes the combination.
  virtual constexpr combination combined_next(const instruction& op, const operator_code& combine) = 0;

  /// Returns a value for kernels to compute with: `v` itself, or its elements in the wider type if the type of `v` is
  /// narrow.
  virtual constexpr int widened(const instruction& op, int v) = 0;
  /// Returns the value that a kernel writes before narrowed(): `result` itself, or a wider value if its type is narrow.
  virtual constexpr int wide_result(int result) = 0;
  /// Converts `from` to the narrow `result`. If `saturates`, an integer out of range becomes the nearest one in range.
  virtual constexpr void narrowed(const instruction& op, int from, int result, bool saturates = false) = 0;
  /// Returns a complex value x as [2, ...]: x, and i x after it. See add_both_turns.
  virtual constexpr int both_turns(const instruction& op, int x) = 0;

  /// Leaves a transpose to an all_to_all; dim `d` of the result is dim permutation[d] of the operand. The all_to_all
  /// either makes the operand for this transpose only, or is the only user of the result. Returns false if the
  /// transpose must be a step.
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
  /// Permutes the dims of a shard, taken in the shape `spec.in` instead of the value's shape.
  constexpr void permute_as(const instruction& op, int operand, int result, const permutation_spec& spec) {
    add_step(id_of<kernels::permute>, op, entry(spec), {operand}, {result});
  }
  virtual constexpr void reduce(const instruction& op, int operand, int result, dim_mask dims, monoid kind) = 0;
  /// The same for an operand that the operator reads only here. One loop may compute the operand and all its waiting
  /// reductions over the same dims.
  virtual constexpr void reduce_once(const instruction& op, int operand, int result, dim_mask dims, monoid kind) = 0;
  /// Copies elements of a value. `strides`, one for each dim of the result, give their positions.
  virtual constexpr void copy(const instruction& op, int from, const extents& strides) = 0;
  /// Adds a movement of an operator that consists of movements. Each movement after the first continues with the result
  /// of the previous.
  virtual constexpr void move(const instruction& op) = 0;

  /// A tile that an operator reads instead of its operand. `at` is, by dim, the index in the tile of index 0 of the
  /// operator's own tile.
  struct placed_tile {
    int value = 0;
    extents at;
  };
  /// Returns the tile of operand k: filled by one movement for all operators that read it, or the shard itself.
  virtual constexpr placed_tile tile(const instruction& op, int k) = 0;

  /// Returns the same elements in another layout.
  virtual constexpr int redistribute(const instruction& op, int from, const sharding& layout) = 0;
  /// Moves the elements of a value by a map and returns the result, of the shape and splits of `v`.
  virtual constexpr int mapped(const instruction& op, int from, local_value v, const index_map& map) = 0;
  /// Returns the value whole along `dim`, if it is split along it: an all_gather.
  virtual constexpr int gather_parts(const instruction& op, int from, int dim) = 0;
  /// Moves or reduces data for an operator.
  virtual constexpr void communicate(const instruction& op) = 0;

  static constexpr vec<int> all_operands(const instruction& op) { return {op.operands.begin(), op.operands.end()}; }

 protected:
  constexpr lowering(const graph& program, plan& plan) : g(program), out(plan) {}
  ~lowering() = default;
};

/// Adds the step of a kernel, from its description, or from the description's number in the plan. Kernels without a
/// description have 0.
template <class K>
constexpr plan_step& add_step(lowering& l, const instruction& op, int spec, const vec<int>& operands, const vec<int>& results) {
  return l.add_step(id_of<K>, op, spec, operands, results);
}
template <class K>
constexpr plan_step& add_step(lowering& l, const instruction& op, const typename mp11::mp_first<typename K::tables>::entry& spec,
                              const vec<int>& operands, const vec<int>& results) {
  return add_step<K>(l, op, l.entry(spec), operands, results);
}
/// The same for a kernel that is not listed.
template <class K>
constexpr plan_step& add_step(lowering& l, const instruction& op, const typename K::description& spec, const vec<int>& operands,
                              const vec<int>& results) {
  return add_step<K>(l, op, description_entry(l.out, spec), operands, results);
}

}  // namespace gspmd::detail
