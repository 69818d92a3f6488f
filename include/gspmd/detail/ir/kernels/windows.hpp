// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ir/kernels/parts.hpp"
#include "gspmd/detail/ir/window.hpp"

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
  monoid kind = monoid::add;
  friend constexpr bool operator==(const window_reduction&, const window_reduction&) = default;
};

struct prepared_window_reduction;

namespace kernels {

/// Every output from its window. Nothing of it knows which part of the tensor the tile is.
struct reduce_window : plain_step, on_one_device, never_in_place, without_scratch {
  static constexpr action name = action::reduce_window;
  using tables = mp11::mp_list<kernel_table<window_reduction, entries::one_per_movement>>;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::bytes;

  static prepared_window_reduction prepare(const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_window_reduction& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace kernels

}  // namespace gspmd::detail
