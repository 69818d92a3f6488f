// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/layout.hpp"

/// The choice of an MPI collective for a descriptor, and the memory for packing if no collective fits. All ranks of a
/// group must make the same choice. So everything here depends only on the descriptor, never on the box of a rank.
namespace gspmd::detail {

/// Returns true if the parts of each dim have the order of the group's members. The axes of the dim are then in the
/// order of the mesh.
constexpr bool in_member_order(const sharding& s, axis_mask axes) {
  int last = -1;
  for (const auto& use : s.splits)
    if ((axes & axis_bit(use.axis)) != 0) {
      if (use.axis < last) return false;
      last = use.axis;
    }
  return true;
}

/// Returns true if pieces of a buffer with these extents, cut along `dim`, are contiguous.
constexpr bool is_major(const extents& local, int dim) {
  for (int d = 0; d < dim; ++d)
    if (local[d] != 1) return false;
  return true;
}

/// Returns true if the shards of the group under `cut`, padding included, are consecutive in the shard under `whole`.
/// One dim is cut, evenly, by all axes of the group, and no other dim differs. (MPI_Allgather,
/// MPI_Reduce_scatter_block)
constexpr bool is_stacked(const mesh_shape& mesh, const extents& global, const sharding& whole, const sharding& cut,
                          axis_mask axes) {
  const auto whole_extents = local_extents(mesh, global, whole);
  const auto cut_extents = local_extents(mesh, global, cut);
  int changed = 0;
  bool fits = in_member_order(cut, axes);
  for_each_split_dim(mesh, whole, cut, [&](const split_change& change) {
    ++changed;
    fits = fits && change.from_axes == 0 && change.to_axes == (axes & mesh.wide_axes()) &&
           whole_extents[change.dim] == change.to_rest * cut_extents[change.dim] && is_major(whole_extents, change.dim);
  });
  return fits && changed == 1;
}

/// Returns true if every member needs all data of the other members. (MPI_Allgather, then each part is copied to its
/// position)
constexpr bool gathers_whole_shards(const mesh_shape& mesh, const movement& m) {
  bool whole = true;
  axis_mask given_up = 0;
  for_each_split_dim(mesh, m.from, m.to, [&](const split_change& change) {
    whole = whole && change.to_axes == 0;
    given_up |= change.from_axes;
  });
  return whole && given_up == (m.axes & mesh.wide_axes());
}

/// Returns true if the axes of the group leave one dim and cut another one evenly, and the pieces are consecutive on
/// both sides. (MPI_Alltoall)
constexpr bool is_contiguous_exchange(const mesh_shape& mesh, const movement& m) {
  const axis_mask axes = m.axes & mesh.wide_axes();
  const auto from = local_extents(mesh, m.from_global, m.from);
  const auto to = local_extents(mesh, m.to_global, m.to);
  int left = 0, cut = 0;
  bool fits = in_member_order(m.from, axes) && in_member_order(m.to, axes);
  for_each_split_dim(mesh, m.from, m.to, [&](const split_change& change) {
    if (change.from_axes == axes && change.to_axes == 0) {
      ++left;
      fits = fits && to[change.dim] == change.from_rest * from[change.dim] && is_major(to, change.dim);
    } else if (change.to_axes == axes && change.from_axes == 0) {
      ++cut;
      fits = fits && from[change.dim] == change.to_rest * to[change.dim] && is_major(from, change.dim);
    } else {
      fits = false;
    }
  });
  return fits && left == 1 && cut == 1;
}

/// Returns the number of members of the group that can receive the same element: those that differ only in axes that
/// `to` does not use.
constexpr std::int64_t sends_at_most(const mesh_shape& mesh, const movement& m) {
  return mesh.size_of(m.axes & ~m.to.split_axes());
}

/// The most elements that are packed outside the user's buffers: sent and received elements. Both are 0 if one MPI call
/// works directly on the user's buffers, and for devices that read each other's memory.
struct packing {
  std::int64_t send_elems = 0;
  std::int64_t receive_elems = 0;
};

/// Returns the packing of a movement that shares messages with other movements.
constexpr packing joint_packing_of(const mesh_shape& mesh, const movement& m) {
  return {elements(local_extents(mesh, m.from_global, m.from)) * sends_at_most(mesh, m),
          elements(local_extents(mesh, m.to_global, m.to))};
}
constexpr packing packing_of(const mesh_shape& mesh, const movement& m) {
  const auto n = mesh.size_of(m.axes);
  if (n == 1) return {};
  if (!m.from_order.empty()) return joint_packing_of(mesh, m);
  const auto shard = elements(local_extents(mesh, m.from_global, m.from));
  if (m.map != nullptr) {
    const auto traffic = traffic_of(mesh, m.from_global, m.from, m.to_global, m.to, *m.map);
    // In a reshape that replicates, a device also sends the elements that it keeps. Programs contain no such reshape:
    // may_be_moved.
    const auto copies = m.map->reshapes ? sends_at_most(mesh, m) : 1;
    return {copies > 1 ? shard * copies : traffic.sent, traffic.received};
  }
  if (gathers_whole_shards(mesh, m)) return {is_stacked(mesh, m.from_global, m.to, m.from, m.axes) ? 0 : shard * n, 0};
  if (is_contiguous_exchange(mesh, m) || classify(mesh, m) == collective_kind::collective_permute) return {};
  return {shard * sends_at_most(mesh, m), elements(local_extents(mesh, m.to_global, m.to))};
}
constexpr packing packing_of(const mesh_shape& mesh, const reduction& r) {
  const auto n = mesh.size_of(r.axes);
  if (n == 1 || classify(mesh, r) == collective_kind::all_reduce) return {};
  const auto result = elements(local_extents(mesh, r.global, r.to));
  if (is_stacked(mesh, r.global, r.from, r.to, r.axes)) return {};
  return {result * n, result};
}

}  // namespace gspmd::detail
