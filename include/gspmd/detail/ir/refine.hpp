// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/annotation.hpp"

namespace gspmd::detail {

/// Takes over splits on dims that `target` leaves open, by axes it does not use: of a whole dim, or minor to the splits that
/// the dim has already where both begin alike. True if anything changed.
/// Dims of extent 1 are left whole: cutting them gives one device everything and the others nothing.
constexpr bool refine(annotation& target, const inline_vec<axis_use, max_axes>& splits, const extents& shape) {
  bool changed = false;
  axis_mask used = target.layout.split_axes() | target.layout.partial;
  for (int i = 0; i < splits.count;) {
    const int dim = splits[i].dim;
    int end = i;
    bool fits = shape[dim] != 1 && (target.open & dim_bit(dim)) != 0;
    int same = 0;  // how many of the axes the dim has already, in this order
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
