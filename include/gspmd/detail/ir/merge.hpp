// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/layout.hpp"

/// Compatibility, merging and the refinement order of shardings (GSPMD 3.5).
namespace gspmd::detail {

/// Whether two lists of axes cut dim `dim` at the same offsets on every device. Axes of size 1 cut nothing, and shards of
/// one extent cut alike only if every device gets the same part.
constexpr bool same_cuts(const mesh_shape& mesh, const sharding& a, const sharding& b, int dim) {
  int i = 0;
  int j = 0;
  const auto next = [&](const sharding& s, int& at) {
    while (at < s.splits.count && (s.splits[at].dim != dim || mesh.sizes[s.splits[at].axis] == 1)) ++at;
    return at < s.splits.count ? static_cast<int>(s.splits[at++].axis) : -1;
  };
  while (true) {
    const int x = next(a, i);
    const int y = next(b, j);
    if (x != y) return false;
    if (x < 0) return true;
  }
}

/// Takes over splits on dims that `target` leaves open, by axes it does not use: of a whole dim, or minor to the splits that
/// the dim has already where both begin alike. True if anything changed.
/// Dims of extent 1 are left whole: cutting them gives one device everything and the others nothing.
constexpr bool refine(sharding& target, const inline_vec<axis_use, max_axes>& splits, const extents& shape) {
  bool changed = false;
  axis_mask used = target.split_axes() | target.partial;
  for (int i = 0; i < splits.count;) {
    const int dim = splits[i].dim;
    int end = i;
    bool fits = shape[dim] != 1 && (target.open & dim_bit(dim)) != 0;
    int same = 0;  // how many of the axes the dim has already, in this order
    int own = 0;
    for (const auto& use : target.splits)
      if (use.dim == dim) {
        if (i + own < splits.count && splits[i + own].dim == dim && splits[i + own].axis == use.axis) ++same;
        ++own;
      }
    fits = fits && same == own;
    for (; end < splits.count && splits[end].dim == dim; ++end)
      if (end - i >= own && (used & axis_bit(splits[end].axis)) != 0) fits = false;
    if (fits)
      for (int at = i + own; at < end; ++at) {
        target.add_split(splits[at].axis, dim);
        used |= axis_bit(splits[at].axis);
        changed = true;
      }
    i = end;
  }
  return changed;
}

/// A merged sharding: one whose offsets agree with those of `a` on the dims that `a` splits and with those of `b` on the dims
/// that `b` splits, on every device; `compatible` says whether there is one.
///   A{x},- and -,C{y}  ->  A{x},C{y}        A{x},- and -,C{x}  ->  none        A{x} and A{x,y}  ->  none
struct merged_sharding {
  bool compatible = false;
  sharding result;
};
constexpr merged_sharding merge(const mesh_shape& mesh, const sharding& a, const sharding& b) {
  merged_sharding m{true, a};
  axis_mask used = 0;
  for (const auto& use : a.splits)
    if (mesh.sizes[use.axis] > 1) used |= axis_bit(use.axis);
  for (const auto& use : b.splits) {
    if (mesh.sizes[use.axis] == 1) continue;
    bool in_a = false;
    for (const auto& other : a.splits) in_a = in_a || (other.dim == use.dim && mesh.sizes[other.axis] > 1);
    if (in_a) {
      if (!same_cuts(mesh, a, b, use.dim)) return {};
    } else {
      if ((used & axis_bit(use.axis)) != 0) return {};
      m.result.add_split(use.axis, use.dim);
    }
  }
  return m;
}

/// True when `a` equals `b` or splits what `b` splits in the same way and more dims besides.
constexpr bool is_refinement(const mesh_shape& mesh, const sharding& a, const sharding& b) {
  for (const auto& use : b.splits)
    if (mesh.sizes[use.axis] > 1 && !same_cuts(mesh, a, b, use.dim)) return false;
  return true;
}

}  // namespace gspmd::detail
