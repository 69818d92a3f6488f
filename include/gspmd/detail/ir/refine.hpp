// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/annotation.hpp"

namespace gspmd::detail {

/// Adds `splits` to the dims that `target` leaves open, by axes that `target` does not use. A dim gets its splits if it
/// has no split yet, or if the new splits begin with its existing ones. Returns true if `target` changed. Dims of
/// extent 1 stay whole: a split would give one device all data and the other devices nothing.
constexpr bool refine(annotation& target, const inline_vec<axis_use, max_axes>& splits, const extents& shape) {
  bool changed = false;
  axis_mask used = target.layout.split_axes() | target.layout.partial;
  for (int i = 0; i < splits.count;) {
    const int dim = splits[i].dim;
    int end = i;
    bool fits = shape[dim] != 1 && (target.open & dim_bit(dim)) != 0;
    int same = 0;  // the number of leading axes that the dim already has, in this order
    int own = 0;
    for (const auto& use : target.layout.splits)
      if (use.dim == dim) {
        if (i + own < splits.count && splits[i + own].dim == dim && splits[i + own].axis == use.axis) ++same;
        ++own;
      }
    fits = fits && same == own;
    for (; end < splits.count && splits[end].dim == dim; ++end)
      if (end - i >= own && (used & axis_bit(splits[end].axis)) != 0) fits = false;
    if (fits)
      for (int at = i + own; at < end; ++at) {
        target.layout.add_split(splits[at].axis, dim);
        used |= axis_bit(splits[at].axis);
        changed = true;
      }
    i = end;
  }
  return changed;
}

}  // namespace gspmd::detail
