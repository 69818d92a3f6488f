// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/ring.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// A value of the program that every device runs: the result of a node under one sharding.
struct local_value {
  int node = 0;
  dtype type = dtype::f32;
  extents global;
  sharding layout;
  extents local;
  // The order of the dims in memory, major to minor; empty: their own order. Only a movement reads a value with another
  // order.
  inline_vec<std::int8_t, max_rank> order = {};
};

/// Returns the transpose of a value without moving its data: dim `d` is dim permutation[d].
constexpr local_value transposed(const local_value& v, const inline_vec<std::int8_t, max_rank>& permutation) {
  local_value t = v;
  t.layout.splits.clear();
  t.order = permutation;
  for (int d = 0; d < permutation.count; ++d) {
    const int was = permutation[d];
    t.global[d] = v.global[was];
    t.local[d] = v.local[was];
    t.order[was] = static_cast<std::int8_t>(d);
    for (const auto& use : v.layout.splits)
      if (use.dim == was) t.layout.splits.push_back(axis_use{use.axis, static_cast<std::int8_t>(d)});
  }
  return t;
}

enum class instruction_kind : std::uint8_t {
  compute,  // the node's operator on shards
  slice,    // cut by the position on the mesh; sends nothing
  move,     // all_gather, all_to_all, collective_permute
  reduce,   // all_reduce, reduce_scatter
  terms,    // used as a partial value of a reduction; sends nothing
  copy,     // to the memory of a carried value or of the result of a conditional
  control,  // begin or end of the body of a loop or conditional: see the node
};

/// An einsum that does not gather an operand: the shards of the operand rotate around a ring
/// (passes/choose/ring_choice.hpp).
struct ring_einsum {
  std::int8_t operand = -1;  // the operand that rotates; -1: none
  std::int8_t dim = 0;       // of the operand
  std::int8_t axes = 0;      // the number of the ring's axes: the last axes that split the dim
  bool both_ways = false;
  bool beyond_limit = false;  // an operand is gathered to more than the user allows
};

struct instruction {
  instruction_kind what = instruction_kind::compute;
  int node = 0;    // compute: the node of the operator; otherwise: the node for which the data moves
  int result = 0;  // local value
  inline_vec<int, max_results - 1> further_results;
  inline_vec<int, max_map_arity> operands;
  axis_mask axes = 0;                                        // move, reduce
  collective_kind collective = collective_kind::all_gather;  // move, reduce
  bool for_output = false;                                   // converts an output to its sharding
  bool forced = false;  // a gather that the operator needs because it cannot work on the split
  ring_einsum ring;     // compute: of an einsum
  // compute: of an operator that consists of movements: the number of its movement; it has axes if it communicates
  int movement = -1;
  std::int64_t bytes_sent = 0;  // compute: of this movement
  bool joined = false;          // move, reduce: in the message of the previous instruction
  bool side_by_side = false;    // all_reduce: the values in its message are contiguous in memory
};

/// The program that all devices run (GSPMD 4): operators on shards and the communication between them.
struct local_program {
  struct lengths {
    std::size_t values = 0, ops = 0, inputs = 0, outputs = 0, results = 0;
  };
  vec<local_value> values;
  vec<instruction> ops;
  vec<int> inputs;   // values
  vec<int> outputs;  // values
  vec<int> results;  // by node: the value that its operator computes, without later reshards; -1 if it is not computed

  static constexpr auto lists(auto& s, auto f) { return f(s.values, s.ops, s.inputs, s.outputs, s.results); }
  struct views {
    span<const local_value> values;
    span<const instruction> ops;
    span<const int> inputs, outputs, results;
  };

  [[nodiscard]] constexpr const local_value& value(int i) const { return values[static_cast<std::size_t>(i)]; }
};

/// Returns the ring around which the shards of an operand with sharding `s` rotate.
constexpr ring ring_of(const ring_einsum& w, const sharding& s) {
  ring r;
  int skipped = -w.axes;
  for (const auto& use : s.splits) skipped += use.dim == w.dim ? 1 : 0;
  for (const auto& use : s.splits)
    if (use.dim == w.dim && skipped-- <= 0) r.axes.push_back(use.axis);
  return r;
}

/// Returns the bytes that one device sends in `op`.
constexpr std::int64_t bytes_of(const mesh_shape& mesh, const local_program& p, const instruction& op) {
  if (op.ring.operand >= 0) {  // a device sends n - 1 shards
    const auto& v = p.value(op.operands[op.ring.operand]);
    return (ring_of(op.ring, v.layout).size(mesh) - 1) * elements(v.local) * bytes_of(v.type);
  }
  if (op.movement >= 0) return op.bytes_sent;
  if (op.what != instruction_kind::move && op.what != instruction_kind::reduce) return 0;
  const auto& from = p.value(op.operands[0]);
  const auto& to = p.value(op.result);
  if (op.what == instruction_kind::move)
    return bytes_sent(mesh, movement{from.global, from.layout, to.layout, op.axes}, bytes_of(from.type));
  return bytes_sent(mesh, reduction{from.global, from.layout, to.layout, op.axes, from.layout.reduced_by}, bytes_of(from.type));
}

}  // namespace gspmd::detail
