// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/kernel_list.hpp"
#include "gspmd/detail/ir/local_function.hpp"
#include "gspmd/detail/ir/local_program.hpp"

namespace gspmd::detail {

/// The number of trips of a loop that runs while a condition holds.
inline constexpr std::int64_t unknown_trips = -1;

/// Where a value lies on every device. What a loop carries without copying it, and what follows it, take turns in two places: the
/// other one it is where the loop has done an odd number of trips.
struct memory_place {
  enum class kind : std::uint8_t { none, input, output, arena };
  kind where = kind::none, other = kind::none;  // other: none: always at the first place
  std::int64_t at = 0, other_at = 0;            // number of the input or output; byte offset in the arena
  std::int64_t trips_at = 0;                    // byte offset in the arena of the loop's counter
  // Of rows that a loop goes through: the bytes of a row, 0 of a value that is there as a whole; and where the number of the first row
  // stands, a byte offset in the arena.
  std::int64_t row_bytes = 0, row_at = 0;

  constexpr memory_place() = default;
  constexpr memory_place(kind k, std::int64_t number) : where(k), at(number) {}
  [[nodiscard]] constexpr bool takes_turns() const { return other != kind::none; }
  /// `place`: of a value that takes no turns.
  [[nodiscard]] constexpr bool may_be(const memory_place& place) const {
    return (where == place.where && at == place.at) || (takes_turns() && other == place.where && other_at == place.at);
  }
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
  int whole = -1;          // of rows that are computed in blocks: the value whose rows they are
  int counter = -1;        // and where they lie where all rows do: the number of the first one
  std::int64_t row_bytes = 0;
  inline_vec<std::int8_t, max_rank> order = {};  // see local_value
  friend constexpr bool operator==(const planned_value&, const planned_value&) = default;
};

/// A number that a step needs and only the device knows: how much of a dim of a shard is not padding, or where it begins.
struct bound {
  // contract: the letter; reduce, reduce_window: the dim; rows: 0, of the operand whose rows they are; gather,
  // scatter: a dim of the table, or 32 and a dim of the slices; scan, top_k, sort, sort_ends: 0, of the dim along which they go; fused:
  // none for an iota (in their order), then the dims in `cut`
  std::int8_t index = 0;
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

struct plan_step {
  kernel_id kernel = id_of<kernels::fused>;
  dtype type = dtype::f32;
  int node = 0;          // whose operator it is, or for whose sake data moves
  int spec = 0;          // in the first table of its kernel; move: -1 where elements keep their indices
  table_range operands;  // in slots: values
  table_range results;   // in slots
  table_range bounds;
  std::int64_t scratch = 0;  // byte offset in the arena
  collective_kind collective = collective_kind::all_gather;
  bool forced = false;
  // The communication of a step each time it runs: inside the groups of some mesh axes (0: nothing), and the bytes and messages of one
  // device.
  axis_mask axes = 0;
  std::int64_t bytes_sent = 0, messages = 0;
  int target = -1;                        // loops and conditionals: another step; copy: the one that opened the body it ends;
                                          // start_move: the finish_move
  std::int64_t trips = 1;                 // loop_begin
  std::int64_t times = 1;                 // how often it runs: the trips of all loops around it
  const local_function* local = nullptr;  // local: whose entry `spec` runs; fold: the monoid
  friend constexpr bool operator==(const plan_step&, const plan_step&) = default;
};
/// Whether a step is of kernel K.
template <class K>
constexpr bool is(const plan_step& s) {
  return s.kernel == id_of<K>;
}
constexpr bool communicates(const plan_step& s) { return s.axes != 0; }

}  // namespace gspmd::detail
