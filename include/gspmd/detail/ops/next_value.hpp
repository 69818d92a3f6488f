// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/reshard.hpp"

namespace gspmd::detail {

/// The outcome of the update of an input, where updates were asked to be split (weight_updates.hpp).
enum class update_outcome : std::uint8_t {
  not_asked,
  no_reduction,    // it reads no reduction over the axes
  other_reader,    // the same on all devices, but no weight: nothing is done for it alone
  split_before,    // it is split over the axes already
  split,           // a weight: its update is split, and its new value gathered
  split_state,     // read by the update of a weight only: it stays split from step to step
  kept_by_user,    // written so
  placed_by_user,  // the new value has a sharding of its own
  in_body,         // a loop or a conditional gives the new value
  too_small,       // no dim can be cut
  too_slow,        // what is sent more takes longer than the update does
};

/// The attributes of a next value.
struct next_value_mark {
  std::int64_t input = -1;  // its number among the inputs
  axis_mask axes = 0;       // over which its update is to be split, where it pays
  update_outcome outcome = update_outcome::not_asked;
  int dim = -1;                  // that is split
  std::int64_t weight = -1;      // the number of the input whose update reads it; of a weight, its own
  std::int64_t saved = 0;        // picoseconds of a device that computes a part only
  std::int64_t sent_longer = 0;  // picoseconds that reduce_scatter and all_gather take more than all_reduce

  static constexpr bool is_on(const node& n);
  constexpr void keep(node& n) const {
    n.attributes.clear();
    add_attributes(n, input, axes, outcome, dim, weight, saved, sent_longer);
  }
  static constexpr next_value_mark of(const node& n) {
    return {n.attributes[0],
            static_cast<axis_mask>(n.attributes[1]),
            static_cast<update_outcome>(n.attributes[2]),
            static_cast<int>(n.attributes[3]),
            n.attributes[4],
            n.attributes[5],
            n.attributes[6]};
  }
};

/// The identity on a value that is the next one of an input, so that it lies where the input does. Until it is known where that is, it asks for
/// no sharding.
struct next_value_op : reshard_op {
  static constexpr const char* name = "next_value";
};
constexpr bool next_value_mark::is_on(const node& n) { return n.op == code_of<next_value_op>; }

/// The number of a value among the inputs of a program; -1: it is none.
constexpr std::int64_t input_number(const graph& g, int id) {
  for (std::size_t k = 0; k < g.inputs.size(); ++k)
    if (g.inputs[k] == id) return static_cast<std::int64_t>(k);
  return -1;
}

/// Adds the next value of an input of its type and shape.
constexpr int add_next_value(graph& g, int operand, std::int64_t input, location at) {
  const node& before = g.nodes[static_cast<std::size_t>(g.inputs[static_cast<std::size_t>(input)])];
  annotation place;
  place.open = ~dim_mask{0};
  node n;
  n.op = code_of<next_value_op>;
  n.type = before.type;
  n.shape = before.shape;
  n.at = at;
  n.annotated = true;
  n.annotation = before.annotated ? before.annotation : place;
  n.operands.push_back(operand);
  next_value_mark mark;
  mark.input = input;
  mark.keep(n);
  return g.add(n);
}

/// An input whose user wants its update computed by every device has an attribute, the only one that inputs may have.
constexpr void keep_whole_update(node& input) { add_attributes(input, 1); }
constexpr bool has_whole_update(const node& input) { return input.attributes.count > 0; }

}  // namespace gspmd::detail
