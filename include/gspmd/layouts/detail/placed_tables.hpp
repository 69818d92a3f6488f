// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/error.hpp"
#include "gspmd/layouts/detail/open_placement.hpp"

/// Placements as tables, and the movements between two placements.
namespace gspmd::detail {

/// A dim under a placement, element by element.
struct dim_table {
  std::vector<std::vector<std::int64_t>> global;  // by part: the global index of each of its elements
  std::vector<placed_at> at;                      // by global index
  std::int64_t local = 0;                         // elements that every part allocates: those of the largest part

  template <placement P>
  dim_table(const P& p, int dim, std::int64_t extent, std::int64_t parts) {
    const auto where = [&] {
      return "placement: dim " + std::to_string(dim) + ": " + std::string(text(P::text()).view()) + " of " +
             std::to_string(extent) + " elements in " + std::to_string(parts) + (parts == 1 ? " part" : " parts");
    };
    if (!placement_fits(p, extent, parts)) throw error(where() + " is not defined; give numbers that add up");
    if (!obeys_placement_law(p, extent, parts))
      throw error(where() + ": split and unsplit are not inverse, or an element is held by no part or by two");
    global.resize(static_cast<std::size_t>(parts));
    at.resize(static_cast<std::size_t>(extent));
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto n = p.local_extent(extent, parts, part);
      local = std::max(local, n);
      auto& mine = global[static_cast<std::size_t>(part)];
      for (std::int64_t i = 0; i < n; ++i) {
        mine.push_back(p.split(extent, parts, part, i));
        at[static_cast<std::size_t>(mine.back())] = {part, i};
      }
    }
  }
  [[nodiscard]] std::int64_t held(std::int64_t part) const {
    return static_cast<std::int64_t>(global[static_cast<std::size_t>(part)].size());
  }
};

/// A run of elements along a dim that are adjacent in the source and in the target.
struct placed_run {
  std::int64_t from, to, size;
};

/// Returns the elements that part `p1` holds and part `p2` of the other placement needs, in the order of p1. Example: 8
/// elements, contiguous in 2 parts, to block_cyclic<2>: from part 0 to part 1 it is {from 2, to 0, size 2}.
inline std::vector<placed_run> common_runs(const dim_table& from, std::int64_t p1, const dim_table& to, std::int64_t p2) {
  std::vector<placed_run> runs;
  const auto& held = from.global[static_cast<std::size_t>(p1)];
  for (std::size_t i = 0; i < held.size(); ++i) {
    const auto there = to.at[static_cast<std::size_t>(held[i])];
    if (there.part != p2) continue;
    const auto here = static_cast<std::int64_t>(i);
    if (!runs.empty() && runs.back().from + runs.back().size == here && runs.back().to + runs.back().size == there.index)
      ++runs.back().size;
    else runs.push_back({here, there.index, 1});
  }
  return runs;
}

/// A tensor over the devices of a mesh: the axes that split each dim, and the placement of each dim.
struct placed_tables {
  mesh_shape mesh;
  extents global;
  sharding axes;
  std::vector<dim_table> dims;

  [[nodiscard]] std::int64_t part(int dim, const coordinates& at) const { return part_index(mesh, axes, dim, at); }
  [[nodiscard]] extents local_extents() const {
    extents local;
    for (const auto& d : dims) local.push_back(d.local);
    return local;
  }
};

using dim_runs = std::vector<std::vector<placed_run>>;

/// Returns the elements that device `source` sends to device `target`, as a product of runs, or an empty list if it
/// sends nothing. If the source is replicated, a device receives from the replica with its own position along the axes
/// that do not split the source. That replica is the device itself if it holds the elements.
inline dim_runs runs_between(const placed_tables& from, const placed_tables& to, std::int64_t source, std::int64_t target) {
  const auto at = from.mesh.coordinates_of(source), wanted = from.mesh.coordinates_of(target);
  const auto split = from.axes.split_axes();
  for (int a = 0; a < from.mesh.axis_count(); ++a)
    if ((split & axis_bit(a)) == 0 && at[a] != wanted[a]) return {};
  const auto place = to.mesh.coordinates_of(target);
  dim_runs runs;
  for (int d = 0; d < from.global.count; ++d) {
    runs.push_back(common_runs(from.dims[static_cast<std::size_t>(d)], from.part(d, at), to.dims[static_cast<std::size_t>(d)],
                               to.part(d, place)));
    if (runs.back().empty()) return {};
  }
  if (runs.empty()) runs.push_back({{0, 0, 1}});  // rank 0
  return runs;
}

inline std::int64_t elements(const dim_runs& runs) {
  std::int64_t n = runs.empty() ? 0 : 1;
  for (const auto& dim : runs) {
    std::int64_t sum = 0;
    for (const auto& r : dim) sum += r.size;
    n *= sum;
  }
  return n;
}

/// Copies a product of runs between a shard and a dense buffer. If `IsPack`, copies from the shard, at the positions of
/// the source.
template <bool IsPack, class Shard, class T>
T* copy_runs(const dim_runs& runs, const extents& local, Shard* shard, T* packed, std::size_t dim = 0, std::int64_t offset = 0) {
  std::int64_t stride = 1;
  for (int d = static_cast<int>(dim) + 1; d < local.count; ++d) stride *= local[d];
  for (const auto& r : runs[dim]) {
    const auto begin = IsPack ? r.from : r.to;
    if (dim + 1 == runs.size()) {
      auto* at = shard + offset + begin * stride;
      if constexpr (IsPack) std::copy_n(at, r.size, packed);
      else std::copy_n(packed, r.size, at);
      packed += r.size;
    } else {
      for (std::int64_t i = begin; i < begin + r.size; ++i)
        packed = copy_runs<IsPack>(runs, local, shard, packed, dim + 1, offset + i * stride);
    }
  }
  return packed;
}

}  // namespace gspmd::detail
