// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/mesh_info.hpp"

/// Whether axes cut a dim evenly, given what others leave of it: asked of the arguments of a manual region, of its border, of what its
/// collectives see, and of automatic axes behind explicit ones.
namespace gspmd::detail {

/// Whether the axes of `minor` cut evenly what those of `major` leave of a dim.
///     12 elements, x:2 is major     y:3 cuts parts of 6 into 2, 2, 2     y:4 cuts into 2, 2, 2, 0: of all 12 so cut the second of x begins at 8
constexpr bool cuts_evenly(const mesh_shape& mesh, std::int64_t global_extent, const sharding& outer, const sharding& inner,
                           int dim) {
  return shard_extent(global_extent, parts_of(mesh, outer, dim)) % parts_of(mesh, inner, dim) == 0;
}
/// Returns a dim that both split, but unevenly: its parts would not begin where those of the whole dim do. -1: there is none.
constexpr int unevenly_cut(const mesh_shape& mesh, const extents& global, const sharding& outer, const sharding& inner) {
  for (int d = 0; d < global.count; ++d)
    if (parts_of(mesh, outer, d) > 1 && !cuts_evenly(mesh, global[d], outer, inner, d)) return d;
  return -1;
}

/// Says that `minor` does not cut evenly what `major` leaves of a dim (cuts_evenly).
[[gnu::cold]] constexpr text uneven_text(const mesh_info& mesh, const extents& global, const sharding& outer,
                                         const sharding& inner, int dim) {
  text t("dim ");
  t << dim << ", " << global[dim] << " elements, is cut ";
  if (const auto parts = parts_of(mesh.shape, outer, dim); parts > 1)
    t << "into parts of " << shard_extent(global[dim], parts) << " by `" << axes_text(mesh, outer.axes_of(dim))
      << "`, and these ";
  return t << "by `" << axes_text(mesh, inner.axes_of(dim)) << "` into " << parts_of(mesh.shape, inner, dim)
           << " parts that are not equal; split another dim, or pad this one";
}

}  // namespace gspmd::detail
