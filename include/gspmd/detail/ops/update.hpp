// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/reshard.hpp"

namespace gspmd::detail {

/// The outcome for the update of an input, in programs that shard weight updates (weight_updates.hpp).
enum class update_outcome : std::uint8_t {
  not_asked,
  no_reduction,    // the update reads no reduction over the axes
  other_reader,    // it reads a reduction, but no update of a weight reads it element by element
  split_before,    // already split over the axes
  split,           // a weight: the update is split, and the new value is gathered
  split_state,     // only the update of a weight reads it: it stays split from step to step
  kept_by_user,    // keep_update_whole
  placed_by_user,  // the new value has its own sharding
  in_body,         // a loop or a conditional computes the new value
  too_small,       // no dim can be split
  too_slow,        // the additional communication takes longer than the update
};

/// The attributes of a next value.
struct update_mark {
  std::int64_t input = -1;  // its number among the inputs
  axis_mask axes = 0;       // the axes over which the update is split, if that is faster
  update_outcome outcome = update_outcome::not_asked;
  int dim = -1;                  // the split dim
  std::int64_t weight = -1;      // the number of the input whose update reads it; for a weight, its own number
  std::int64_t saved = 0;        // picoseconds that a device saves by computing a part only
  std::int64_t sent_longer = 0;  // additional picoseconds of reduce_scatter and all_gather compared with all_reduce

  static constexpr bool is_on(const node& n);
  constexpr void keep(node& n) const {
    n.attributes.clear();
    add_attributes(n, input, axes, outcome, dim, weight, saved, sent_longer);
  }
  static constexpr update_mark of(const node& n) {
    return {n.attributes[0],
            static_cast<axis_mask>(n.attributes[1]),
            static_cast<update_outcome>(n.attributes[2]),
            static_cast<int>(n.attributes[3]),
            n.attributes[4],
            n.attributes[5],
            n.attributes[6]};
  }
};

/// The identity on the next value of an input. It has the sharding of the input. Until that sharding is known, the
/// annotation is open.
///
/// **Shapes.** x -> the shape of x. **Splits.** Those of the input.
struct update_op : reshard_op {
  static constexpr const char* name = "update";
};
constexpr bool update_mark::is_on(const node& n) { return n.op == code_of<update_op>; }

/// Returns the number of a value among the inputs of a program, or -1.
constexpr std::int64_t input_number(const graph& g, int id) {
  for (std::size_t k = 0; k < g.inputs.size(); ++k)
    if (g.inputs[k] == id) return static_cast<std::int64_t>(k);
  return -1;
}

/// Adds the next value of an input with the type and shape of the input.
constexpr int add_update(graph& g, int operand, std::int64_t input, location at) {
  const node& before = g.nodes[static_cast<std::size_t>(g.inputs[static_cast<std::size_t>(input)])];
  annotation place;
  place.open = ~dim_mask{0};
  node n;
  n.op = code_of<update_op>;
  n.type = before.type;
  n.shape = before.shape;
  n.at = at;
  n.annotated = true;
  n.annotation = before.annotated ? before.annotation : place;
  n.operands.push_back(operand);
  update_mark mark;
  mark.input = input;
  mark.keep(n);
  return g.add(n);
}

/// Marks an input whose update each device computes whole. This is the only attribute of an input.
constexpr void keep_whole_update(node& input) { add_attributes(input, 1); }
constexpr bool has_whole_update(const node& input) { return input.attributes.count > 0; }

}  // namespace gspmd::detail
