// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ir/window.hpp"
#include "gspmd/extend/kernel.hpp"

namespace gspmd::detail {

/// A window along a dim of a tile: window_dim::in_tile().
struct window_along {
  std::int8_t dim = 0;
  window_dim window;
  static constexpr void fields(auto& s, auto f) {
    f(s.dim, s.window.size, s.window.stride, s.window.dilation, s.window.offset, s.window.base);
  }
  friend constexpr bool operator==(const window_along&, const window_along&) = default;
};

/// A reduction of windows over a tile. If a dim has no window, every element is its own window. Tile and result can be
/// larger than the accessed part. Only existing elements of the result are computed, and only their windows are read.
struct window_reduction {
  extents in, out;  // allocated, dense row-major
  inline_vec<window_along, max_mapped_dims> windows;
  monoid reduced_by = monoid::add;
  static constexpr void fields(auto& s, auto f) { f(s.in, s.out, s.windows, s.reduced_by); }
  friend constexpr bool operator==(const window_reduction&, const window_reduction&) = default;
};

/// The gradient of a maximum or minimum over windows, for any part of a tensor. An element depends only on its own
/// windows. In every dim with a window, index q of the gradient's tile belongs to the window that begins at index q of
/// the operand's tile. It holds the gradient of this window, or 0 if no window begins there. Element i of the result is
/// at index room + step * i of the operand's tile.
struct window_selection {
  struct along_dim {
    std::int8_t dim = 0;
    std::int64_t size = 1, dilation = 1;  // of the window
    std::int64_t step = 1;
    std::int64_t room = 0;              // space before the first element, for windows that begin there: the span - 1
    std::int64_t in_at = 0, by_at = 0;  // the positions of index 0 in the memory of the two tiles
    static constexpr void fields(auto& s, auto f) { f(s.dim, s.size, s.dilation, s.step, s.room, s.in_at, s.by_at); }
    friend constexpr bool operator==(const along_dim&, const along_dim&) = default;
  };
  extents in, by, out;  // allocated: the tiles of the operand and of the gradient, the result
  inline_vec<along_dim, max_mapped_dims> windows;
  bool is_minimum = false;
  /// There are no tiles, because a device holds all elements that its windows read. `in` and `by` are the operand and
  /// the gradient. Window q begins at step * q - room.
  bool is_own = false;
  static constexpr void fields(auto& s, auto f) { f(s.in, s.by, s.out, s.windows, s.is_minimum, s.is_own); }
  friend constexpr bool operator==(const window_selection&, const window_selection&) = default;
};

struct prepared_window_reduction;
struct prepared_window_selection;
struct windows_by_parts;  // windows/detail/part_of_windows.hpp
struct selections_by_parts;

namespace kernels {

/// Computes every output from its window. The step does not depend on the part of the tensor that the tile belongs to.
struct reduce_window : device_kernel, plain_step, never_in_place, without_scratch {
  static constexpr const char* name = "reduce_window";
  using description = window_reduction;
  using parts = windows_by_parts;
  static constexpr element_kinds handles = element_kinds::bytes;

  template <class = once>
  static prepared_window_reduction prepare(const window_reduction& windows, const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_window_reduction& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

/// Adds the source element of each window to the first of the largest (or smallest) elements of the window.
struct select_and_scatter : device_kernel, plain_step, never_in_place, without_scratch {
  static constexpr const char* name = "select_and_scatter";
  using description = window_selection;
  using parts = selections_by_parts;
  static constexpr element_kinds handles = element_kinds::bytes;

  template <class = once>
  static prepared_window_selection prepare(const window_selection& windows, const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_window_selection& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace kernels

}  // namespace gspmd::detail
