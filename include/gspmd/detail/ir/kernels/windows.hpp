// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ir/kernels/parts.hpp"
#include "gspmd/detail/ir/window.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// A window along a dim of a tile: window_dim::in_tile().
struct window_along {
  std::int8_t dim = 0;
  window_dim window;
  friend constexpr bool operator==(const window_along&, const window_along&) = default;
};

/// A reduction of windows over a tile. Along dims without a window every element is a window of its own. Tile and result may be
/// larger than what is looked at: of the result the part that is there, of the tile what it reads.
struct window_reduction {
  extents in, out;  // allocated, dense row-major
  inline_vec<window_along, max_mapped_dims> windows;
  monoid reduced_by = monoid::add;
  friend constexpr bool operator==(const window_reduction&, const window_reduction&) = default;
};

/// The gradient of a maximum or minimum over windows: of an element's own windows alone, whichever part of a tensor this is. The tile of
/// the gradient holds at index q of every dim with a window what the window brings that begins at index q of the operand's tile, 0 if
/// none does; element i of the result is at index room + step * i of the latter.
struct window_selection {
  struct along_dim {
    std::int8_t dim = 0;
    std::int64_t size = 1, dilation = 1;  // of the window
    std::int64_t step = 1;
    std::int64_t room = 0;              // before the first element, for windows that begin there: the span less 1
    std::int64_t in_at = 0, by_at = 0;  // where index 0 is in the memory of either tile
    friend constexpr bool operator==(const along_dim&, const along_dim&) = default;
  };
  extents in, by, out;  // allocated: the tiles of the operand and of the gradient, the result
  inline_vec<along_dim, max_mapped_dims> windows;
  bool is_minimum = false;
  /// There are no tiles, as a device holds all that its windows read: `in` and `by` are the operand and the gradient, window q begins at
  /// step * q - room.
  bool is_own = false;
  friend constexpr bool operator==(const window_selection&, const window_selection&) = default;
};

struct prepared_window_reduction;
struct prepared_window_selection;

namespace kernels {

/// Every output from its window. Nothing of it knows which part of the tensor the tile is.
struct reduce_window : plain_step, on_one_device, never_in_place, without_scratch, not_by_rows {
  using tables = mp11::mp_list<kernel_table<window_reduction, entries::one_per_movement>>;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::bytes;

  template <class = once>
  static prepared_window_reduction prepare(const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_window_reduction& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

/// Adds each window's element of the source to the first of the window's elements that is the largest, or smallest.
struct select_and_scatter : plain_step, on_one_device, never_in_place, without_scratch, not_by_rows {
  using tables = mp11::mp_list<kernel_table<window_selection, entries::one_per_movement>>;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::bytes;

  template <class = once>
  static prepared_window_selection prepare(const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_window_selection& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace kernels

}  // namespace gspmd::detail
