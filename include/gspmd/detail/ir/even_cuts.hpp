// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/mesh_info.hpp"

/// Checks that axes cut a dim evenly after other axes have cut it. The checks apply to arguments of a manual region,
/// its boundary, the operands of its collectives, and automatic axes after explicit ones.
namespace gspmd::detail {

/// Returns true if the axes of `inner` cut the parts of a dim under `outer` evenly.
///     12 elements, outer x:2     inner y:3 cuts parts of 6 into 2, 2, 2     inner y:4 cuts them into 2, 2, 2, 0
///                                with y:4, the second part of x begins at 8 if all 12 elements are cut, and not at 6
constexpr bool cuts_evenly(const mesh_shape& mesh, std::int64_t global_extent, const sharding& outer, const sharding& inner,
                           int dim) {
  return shard_extent(global_extent, parts_of(mesh, outer, dim)) % parts_of(mesh, inner, dim) == 0;
}
/// Returns a dim that both split, but unevenly, so its parts begin at other elements than those of the whole dim.
/// Returns -1 if no dim is cut unevenly.
constexpr int unevenly_cut(const mesh_shape& mesh, const extents& global, const sharding& outer, const sharding& inner) {
  for (int d = 0; d < global.count; ++d)
    if (parts_of(mesh, outer, d) > 1 && !cuts_evenly(mesh, global[d], outer, inner, d)) return d;
  return -1;
}

/// Returns the text that `inner` does not cut evenly the parts of a dim under `outer` (cuts_evenly).
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
