// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/ops/integers.hpp"
#include "gspmd/ops/shape.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/windows/detail/reduce_window_op.hpp"

namespace gspmd {

/// Reduces windows of `x` by a monoid: StableHLO's `reduce_window`. In every dim d, `x` is first dilated, with
/// base_dilation[d] - 1 places between its elements, and then padded. low[d] places are added before the elements and
/// high[d] after them; negative numbers remove elements. Output o is the reduction over a window that begins at
/// stride[d] * o. The window has size[d] elements, window_dilation[d] apart. Places without an element do not count.
///
/// The defaults of low and high are 0, and those of the other lists are 1. A dim without a window has size 1. All
/// devices and meshes combine elements in the order of the window, so every sharding gives the same bits. The gradient
/// of a sum or a product is a reduction of windows.
///
/// **Communication.** Splits do not change. If a dim with a window is split, a device receives only the elements of
/// other shards that its outputs read, by collective_permute (halo exchange). Several neighbours may send them, and
/// parts and halos may be uneven. None along other dims, and never a gather.
/// **Errors.** At compile time: a list without one number for each dim; a size, stride or dilation below 1; a window
/// larger than the padded dim; a monoid that the element type does not have.
/// **Example.**
///     auto y = reduce_window(x, monoid::max, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {0, 1, 1});   // [c,9,9] -> [c,5,5]
/// **Source.** GSPMD, sections 4.3 and A.2.
constexpr value reduce_window(value x, monoid kind, integers size, integers stride = {}, integers low = {}, integers high = {},
                              integers base_dilation = {}, integers window_dilation = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  const detail::one_call call(x.graph(), "reduce_window", {x.id()});
  const auto list = [&](integers given, std::int64_t number) { return detail::filled(given, x.rank(), number); };
  const auto strides = list(stride, 1), lows = list(low, 0), highs = list(high, 0), bases = list(base_dilation, 1),
             dilations = list(window_dilation, 1);
  const auto span = [](const detail::vec<std::int64_t>& v) { return detail::span<const std::int64_t>(v.data(), v.size()); };
  const detail::window_lists lists{size, span(strides), span(lows), span(highs), span(bases), span(dilations)};
  return detail::made(detail::add_reduce_window(*x.graph(), x.id(), lists, kind, at), x);
}

}  // namespace gspmd
