// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "gspmd/detail/exec/collective.hpp"
#include "gspmd/detail/exec/contraction_plan.hpp"
#include "gspmd/detail/exec/fused_group.hpp"
#include "gspmd/detail/exec/permute.hpp"
#include "gspmd/detail/exec/reduce.hpp"
#include "gspmd/detail/exec/ring.hpp"
#include "gspmd/detail/ir/local_function.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// What a step of a plan does; each has its table of descriptions in the plan.
enum class action : std::uint8_t {
  fused,       // a run of elementwise operators
  contract,    // einsum of two operands
  windowed,    // the same, while the shards of one of them go round a ring of devices (collective_permute)
  reduce,      // over dims of a shard
  permute,     // transpose of a shard
  move,        // slice (no axes), all_gather, all_to_all, collective_permute; one with a map, which may send nothing
  combine,     // reduce_scatter, all_reduce: of one value, or of several that lie one after the other
  row,         // reads one row, at an index that is computed
  set_row,     // writes one row
  copy,        // a shard as it is
  local,       // a user's function of blocks
  loop_begin,  // the body follows, up to the loop_end at `target`; a loop of no trips goes past it
  loop_end,
  branch,     // goes past `target`, the otherwise step, where its operand does not hold
  otherwise,  // goes to `target`, the join step
  join,
};

/// Where a value lies on every device.
struct memory_place {
  enum class kind : std::uint8_t { none, input, output, arena };
  kind where = kind::none;
  std::int64_t at = 0;  // number of the input or output; byte offset in the arena
  friend constexpr bool operator==(const memory_place&, const memory_place&) = default;
};

struct planned_value {
  int node = 0;
  dtype type = dtype::f32;
  extents global;
  sharding layout;
  extents local;
  memory_place where;
  int step = -1;           // that computes it; -1: an input, or read through strides where it is used
  bool is_padded = false;  // on some device
  friend constexpr bool operator==(const planned_value&, const planned_value&) = default;
};

/// A number that a step needs and only the device knows: how much of a dim of a shard is not padding, or where it begins.
struct bound {
  std::int8_t index =
      0;  // contract: the letter; reduce: the dim; fused: none for an iota (in their order), then the dims in `cut`
  int value = 0;
  std::int8_t dim = 0;
  friend constexpr bool operator==(const bound&, const bound&) = default;
};

/// A range of one of the plan's tables.
struct table_range {
  int begin = 0;
  int count = 0;
  friend constexpr bool operator==(const table_range&, const table_range&) = default;
};

struct planned_group {
  extents loop;
  dim_mask cut = 0;  // loop dims that end early on some device: no loop computes padding
  table_range ops;
  table_range stores;
  friend constexpr bool operator==(const planned_group&, const planned_group&) = default;
};

/// How an einsum takes an operand shard by shard. Places in scratch are in elements from its begin.
struct planned_window {
  int contraction = 0;                     // of one shard
  std::int8_t operand = 0;                 // whose shards go round
  std::int8_t letter = 0;                  // of the contraction: the dim along which they lie
  inline_vec<std::int8_t, 3> dims;         // which dim that is of both operands and the result; -1: of none
  inline_vec<std::int8_t, max_axes> axes;  // of the ring
  bool both_ways = false;
  std::int64_t buffers_at = 0;   // shards of the other devices: see ring_rounds
  std::int64_t operand_at = -1;  // the part of the other operand; -1: it is used where it lies
  std::int64_t result_at = -1;   // the part of the result; likewise
  std::int64_t scratch_elems = 0;
  friend constexpr bool operator==(const planned_window&, const planned_window&) = default;
};

/// Buffers in scratch are whole cache lines of the smallest elements that an einsum has.
constexpr std::int64_t buffer_elems(std::int64_t elems) { return (elems + 15) / 16 * 16; }

struct plan_step {
  action what = action::fused;
  dtype type = dtype::f32;
  int node = 0;          // whose operator it is, or for whose sake data moves
  int spec = 0;          // in the table of its action; move: -1 where elements keep their indices
  table_range operands;  // in slots: values
  table_range results;   // in slots
  table_range bounds;
  std::int64_t scratch = 0;  // byte offset in the arena
  collective_kind collective = collective_kind::all_gather;
  bool forced = false;
  std::int64_t bytes_sent = 0;            // each time it runs
  int target = -1;                        // loops and conditionals: another step; copy: the one that opened the body it ends
  std::int64_t trips = 1;                 // loop_begin
  std::int64_t times = 1;                 // how often it runs: the trips of all loops around it
  const local_function* local = nullptr;  // local: whose entry `spec` runs
  friend constexpr bool operator==(const plan_step&, const plan_step&) = default;
};

/// One line of the user's program, for messages and for explain.
struct planned_node {
  opcode op = opcode::parameter;
  location at;
  int value = -1;          // its result as the operator leaves it; -1: no output depends on it
  std::int64_t flops = 0;  // of one device, in all steps it became and all trips of them (flops.hpp says how they are counted)
  int region = -1;         // the node in whose body it stands
};

/// Everything about a compiled program, as tables of plain values. Either these vectors own them (`plan`), or constants do;
/// executors and explain read them through `plan_view`.
struct plan {
  mesh_shape mesh;
  vec<planned_node> nodes;
  vec<sharding> completed;  // by node
  vec<planned_value> values;
  vec<plan_step> steps;
  vec<int> slots;
  vec<bound> bounds;
  vec<planned_group> groups;
  vec<scalar_op> scalar_ops;
  vec<fused_store> stores;
  vec<contraction_plan> contractions;
  vec<reduction_spec> reductions;
  vec<permutation_spec> permutations;
  vec<planned_window> windows;
  vec<index_map> maps;     // of movements
  vec<int> inputs;         // values
  vec<int> outputs;        // values
  vec<int> shared_inputs;  // by output: the input whose memory it may be given; -1: none
  std::int64_t arena_bytes = 0;
  text error;  // why the program is refused, if it is
  mistake broken = mistake::other;
};

struct plan_view {
  const mesh_shape* mesh = nullptr;
  std::span<const planned_node> nodes;
  std::span<const sharding> completed;
  std::span<const planned_value> values;
  std::span<const plan_step> steps;
  std::span<const int> slots;
  std::span<const bound> bounds;
  std::span<const planned_group> groups;
  std::span<const scalar_op> scalar_ops;
  std::span<const fused_store> stores;
  std::span<const contraction_plan> contractions;
  std::span<const reduction_spec> reductions;
  std::span<const permutation_spec> permutations;
  std::span<const planned_window> windows;
  std::span<const index_map> maps;
  std::span<const int> inputs;
  std::span<const int> outputs;
  std::span<const int> shared_inputs;
  std::int64_t arena_bytes = 0;

  constexpr plan_view() = default;
  template <class Tables>  // plan, or the constant tables of a static program
  constexpr explicit plan_view(const Tables& p)
      : mesh(&p.mesh),
        nodes(p.nodes),
        completed(p.completed),
        values(p.values),
        steps(p.steps),
        slots(p.slots),
        bounds(p.bounds),
        groups(p.groups),
        scalar_ops(p.scalar_ops),
        stores(p.stores),
        contractions(p.contractions),
        reductions(p.reductions),
        permutations(p.permutations),
        windows(p.windows),
        maps(p.maps),
        inputs(p.inputs),
        outputs(p.outputs),
        shared_inputs(p.shared_inputs),
        arena_bytes(p.arena_bytes) {}

  [[nodiscard]] constexpr const planned_value& value(int i) const { return values[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr const planned_value& operand(const plan_step& s, int k) const {
    return value(slots[static_cast<std::size_t>(s.operands.begin + k)]);
  }
  [[nodiscard]] constexpr const planned_value& result(const plan_step& s, int k = 0) const {
    return value(slots[static_cast<std::size_t>(s.results.begin + k)]);
  }
};

constexpr collective_origin origin_of(const plan_view& p, const plan_step& s) {
  const auto& n = p.nodes[static_cast<std::size_t>(s.node)];
  return {true, n.op, n.at.file, n.at.line};
}
/// A movement into a range of its second operand, which its result is otherwise.
constexpr bool writes_into_operand(const plan_step& s) { return s.what == action::move && s.operands.count == 2; }
constexpr bool is_mapped(const plan_step& s) { return s.what == action::move && s.spec >= 0; }
constexpr const index_map& map_of(const plan_view& p, const plan_step& s) { return p.maps[static_cast<std::size_t>(s.spec)]; }
constexpr movement movement_of(const plan_view& p, const plan_step& s) {
  const auto& from = p.operand(s, 0);
  const auto& to = p.result(s);
  if (is_mapped(s)) return {*p.mesh, from.global, to.global, to.layout, map_of(p, s), origin_of(p, s)};
  return {from.global, from.layout, to.layout, movement_axes(*p.mesh, from.global, from.layout, to.layout), origin_of(p, s)};
}
/// What a movement with a map exchanges.
constexpr map_traffic traffic_of(const plan_view& p, const plan_step& s) {
  return traffic_of(*p.mesh, p.operand(s, 0).global, p.result(s).global, p.result(s).layout, map_of(p, s));
}
constexpr const planned_window& window_of(const plan_view& p, const plan_step& s) {
  return p.windows[static_cast<std::size_t>(s.spec)];
}
constexpr ring ring_of(const plan_view& p, const plan_step& s) {
  const auto& w = window_of(p, s);
  const auto& shard = p.operand(s, w.operand);
  return {w.axes, elements(shard.local) * bytes_of(shard.type), origin_of(p, s)};
}
constexpr reduction reduction_of(const plan_view& p, const plan_step& s) {
  const auto& from = p.operand(s, 0);
  const auto& to = p.result(s);
  if (s.operands.count > 1) {  // as one list of elements
    reduction all{extents(1, 0), {}, {}, from.layout.partial & ~to.layout.partial, from.layout.kind, origin_of(p, s)};
    for (int k = 0; k < s.operands.count; ++k) all.global[0] += elements(p.operand(s, k).local);
    all.from.partial = all.axes;
    all.from.kind = all.kind;
    return all;
  }
  return {from.global, from.layout, to.layout, from.layout.partial & ~to.layout.partial, from.layout.kind, origin_of(p, s)};
}

}  // namespace gspmd::detail
