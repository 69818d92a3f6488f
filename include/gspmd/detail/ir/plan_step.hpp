// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/kernel_list.hpp"
#include "gspmd/detail/ir/local_program.hpp"

namespace gspmd::detail {

struct local_function;  // ir/local_function.hpp

/// The number of iterations of a loop that runs while a condition holds: it is unknown.
inline constexpr std::int64_t unknown_trips = -1;

/// The memory of a value, equal on every device. A loop-carried value that is not copied alternates between two places,
/// and so do its aliases. After an odd number of iterations the value is in the other place.
struct memory_place {
  enum class kind : std::uint8_t { none, input, output, arena };
  kind where = kind::none, other = kind::none;  // other: none: always in the first place
  std::int64_t at = 0, other_at = 0;            // number of the input or output; byte offset in the arena
  std::int64_t trips_at = 0;                    // byte offset in the arena of the loop's iteration counter
  // Set if a loop processes the rows in blocks. `row_bytes`: the bytes of a row, 0 if the whole value is stored.
  // `row_at`: the byte offset in the arena of the number of the first row.
  std::int64_t row_bytes = 0, row_at = 0;

  constexpr memory_place() = default;
  constexpr memory_place(kind k, std::int64_t number) : where(k), at(number) {}
  [[nodiscard]] constexpr bool takes_turns() const { return other != kind::none; }
  /// Returns true if the value can be in `place`, which is the place of a value that does not alternate.
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
  int step = -1;           // the step that computes it; -1: an input, or read through strides by its users
  bool is_padded = false;  // on at least one device
  int whole = -1;          // of rows that are computed in blocks: the value that the rows belong to
  // of such rows, if they are stored in the memory of all rows: the value with the number of the first row
  int counter = -1;
  std::int64_t row_bytes = 0;
  inline_vec<std::int8_t, max_rank> order = {};  // the order of its dims in memory, see local_value
  friend constexpr bool operator==(const planned_value&, const planned_value&) = default;
};

/// A number that a step needs and that differs between devices: the extent of a dim of a shard without padding, or its
/// begin.
struct bound {
  // The meaning depends on the kernel:
  //   contract                           the letter
  //   reduce, reduce_window              the dim
  //   rows                               0, of the operand that is split into rows
  //   gather, scatter                    a dim of the table, or 32 + a dim of the slices
  //   scan, top_k, sort, sort_ends       0, of the dim that they process
  //   fused                              first one for each iota, in order, with no index; then the dims in `cut`
  std::int8_t index = 0;
  int value = 0;
  std::int8_t dim = 0;
  friend constexpr bool operator==(const bound&, const bound&) = default;
};

/// A range of a table of the plan.
struct table_range {
  int begin = 0;
  int count = 0;
  friend constexpr bool operator==(const table_range&, const table_range&) = default;
};

struct plan_step {
  kernel_id kernel;
  dtype type = dtype::f32;
  int node = 0;  // the node that the step computes, or for which it moves data
  // An index in the first table of its kernel, or the number of its description. move: -1 if elements keep their
  // indices.
  int spec = 0;
  table_range operands;  // in slots: values
  table_range results;   // in slots
  table_range bounds;
  std::int64_t scratch = 0;  // byte offset in the arena
  collective_kind collective = collective_kind::all_gather;
  bool forced = false;
  // The communication of one execution of the step: the mesh axes of its groups (0: no communication), and the bytes
  // and messages of one device.
  axis_mask axes = 0;
  std::int64_t bytes_sent = 0, messages = 0;
  // loops and conditionals: another step; copy: the step that opened the body that the copy ends; start_move: the
  // finish_move
  int target = -1;
  std::int64_t trips = 1;                 // loop_begin
  std::int64_t times = 1;                 // number of executions: the product of the iterations of all enclosing loops
  const local_function* local = nullptr;  // local: the function whose entry `spec` runs; fold: the monoid
  friend constexpr bool operator==(const plan_step&, const plan_step&) = default;
};
/// Returns true if the kernel of a step is K.
template <class K>
constexpr bool is(const plan_step& s) {
  return s.kernel.name->number == kernel_number<K>;
}
constexpr bool communicates(const plan_step& s) { return s.axes != 0; }

}  // namespace gspmd::detail
