// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/message_plan.hpp"
#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/movement_boxes.hpp"
#include "gspmd/detail/transport/node_boxes.hpp"

/// The messages, as offsets and sizes, of a process in a collective that uses messages. They are computed once,
/// because computing them takes longer than a message of 1 KiB.
namespace gspmd::detail {

/// A list of boxes with their offsets in two buffers. It is smaller than a list of placed_box, which has memory for
/// max_rank dims.
class box_list {
 public:
  int add(const placed_box& placed) {
    boxes_.push_back({placed.box.rank, static_cast<int>(dims_.size()), placed.in_offset, placed.out_offset});
    for (int d = 0; d < placed.box.rank; ++d)
      dims_.push_back({placed.box.size[d], placed.box.in_stride[d], placed.box.out_stride[d]});
    return static_cast<int>(boxes_.size()) - 1;
  }
  [[nodiscard]] placed_box operator[](int i) const {
    const auto& b = boxes_[static_cast<std::size_t>(i)];
    placed_box placed;
    placed.box.rank = b.rank;
    placed.in_offset = b.in_offset;
    placed.out_offset = b.out_offset;
    for (int d = 0; d < b.rank; ++d) {
      const auto& loop = dims_[static_cast<std::size_t>(b.first + d)];
      placed.box.size[d] = loop.size;
      placed.box.in_stride[d] = loop.in;
      placed.box.out_stride[d] = loop.out;
    }
    return placed;
  }

 private:
  struct entry {
    int rank, first;
    std::int64_t in_offset, out_offset;
  };
  struct dim {
    std::int64_t size, in, out;
  };
  std::vector<entry> boxes_;
  std::vector<dim> dims_;
};

inline constexpr int no_box = -1;

/// The largest number of elements in one MPI call.
inline constexpr std::int64_t largest_mpi_count = 0x7fffffff;

/// A message to or from the member `peer`. Without a box, the message is sent from or received in the user's buffer,
/// at offset `at`. With a box, `at` is an offset in the scratch memory, and the box copies between the scratch memory
/// and the user's buffer.
struct routed_message {
  std::int64_t peer;
  std::int64_t at;
  std::int64_t elems;
  int box;
};

struct movement_route {
  enum class way : std::uint8_t {
    gather,           // MPI_Allgather
    gather_to_boxes,  // MPI_Allgather into scratch memory, then each box is copied into the result
    exchange,         // MPI_Alltoall
    permute,          // whole shards, as messages
    messages,
  };
  way how = way::messages;
  std::int64_t shard_elems = 0;
  std::int64_t block_elems = 0;  // from each member, for gather, gather_to_boxes and exchange
  packing memory;
  std::vector<routed_message> receives, sends;
  std::vector<int> own;  // boxes that this device copies from its own shard
  struct filled {
    int box;
    std::uint64_t bits;  // of each element
  };
  std::vector<filled> gaps;
  box_list boxes;
  std::vector<routed_message> takes;  // if shards are small: the boxes to copy from the shards of the members
  std::optional<node_boxes> node;     // set if messages with boxes would be packed
};

/// Returns the route of member `self` of a group, at `me`. Shards of up to `small_elems` elements may be copied
/// through node_window::share. If `joint`, the movement shares its messages with other movements. Then it is sent box
/// by box, even if one MPI call could carry it out.
inline movement_route route_of(const mesh_shape& mesh, const movement& m, const coordinates& me, std::int64_t self,
                               std::int64_t small_elems, bool joint = false) {
  using way = movement_route::way;
  movement_route route;
  const auto n = mesh.size_of(m.axes);
  const auto shard = elements(local_extents(mesh, m.from_global, m.from));
  const auto turns = turns_of(mesh, m);
  std::vector<buffer_layout> targets, sources;  // by turn
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    targets.push_back(target_of(mesh, m, me, turn, [&](const placed_box& gap, std::uint64_t bits) {
      route.gaps.push_back({route.boxes.add(gap), bits});
    }));
    sources.push_back(source_of(mesh, m, me, turn));
  }
  const auto& target = targets.front();
  const auto peer_at = [&](std::int64_t j) { return group_member(mesh, m.axes, me, j); };
  route.memory = joint && m.map == nullptr ? joint_packing_of(mesh, m) : packing_of(mesh, m);
  route.shard_elems = route.block_elems = shard;
  const bool is_alone = m.map == nullptr && !joint;
  const bool may_be_one_call = is_alone && m.from_order.empty();
  const bool permutes = may_be_one_call && classify(mesh, m) == collective_kind::collective_permute;
  for (std::int64_t k = 0; k < n && (joint || shard <= small_elems) && !permutes; ++k) {
    const auto j = (self + k) % n;
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      const auto from = source_of(mesh, m, peer_at(j), turn);
      const auto& to = targets[static_cast<std::size_t>(turn)];
      const auto part = intersect(from.held, to.held);
      if (part.any()) route.takes.push_back({j, 0, part.elems(), route.boxes.add(place(part, from, to))});
    }
  }
  const bool gathers = may_be_one_call && gathers_whole_shards(mesh, m);
  if (is_alone && !gathers && route.memory.send_elems > 0) route.node.emplace(mesh, m, me);
  if (gathers) {
    if (route.memory.send_elems == 0) {
      route.how = way::gather;
      return route;
    }
    route.how = way::gather_to_boxes;
    for (std::int64_t j = 0; j < n; ++j) {
      const auto from = source_of(mesh, m, peer_at(j), 0);
      const auto part = intersect(from.held, target.held);
      if (!part.any()) continue;
      auto placed = place(part, from, target);
      placed.in_offset += j * shard;
      route.receives.push_back({j, j * shard, shard, route.boxes.add(placed)});
    }
    return route;
  }
  if (may_be_one_call && is_contiguous_exchange(mesh, m)) {
    route.how = way::exchange;
    route.block_elems = shard / n;
    return route;
  }
  if (permutes) {
    route.how = way::permute;
    // Each whole shard moves to another device. One device may have to send its shard to several devices.
    for (std::int64_t j = 0; j < n; ++j) {
      const auto peer = peer_at(j);
      const bool is_source = intersect(source_of(mesh, m, peer, 0).held, target.held).any();
      const bool is_target = intersect(source_of(mesh, m, me, 0).held, target_of(mesh, m, peer, 0).held).any();
      if (j == self) {
        placed_box whole;
        whole.box.add_major_dim(shard, 1, 1);
        if (is_source) route.own.push_back(route.boxes.add(whole));
        continue;
      }
      if (is_source) route.receives.push_back({j, 0, shard, no_box});
      if (is_target) route.sends.push_back({j, 0, shard, no_box});
    }
    return route;
  }
  // One box for each pair and turn, in the order of the turns on both sides. A box that is contiguous in the user's
  // buffer is not packed.
  std::int64_t received = 0, sent = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    if (j == self) continue;
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      const auto& to = targets[static_cast<std::size_t>(turn)];
      const auto box = intersect(source_of(mesh, m, peer_at(j), turn).held, to.held);
      if (!box.any()) continue;
      auto placed = place(box, packed(box), to);
      const auto elems = box.elems();
      if (placed.box.row() == elems) {
        route.receives.push_back({j, placed.out_offset, elems, no_box});
        continue;
      }
      placed.in_offset = received;
      route.receives.push_back({j, received, elems, route.boxes.add(placed)});
      received += elems;
    }
  }
  for (std::int64_t k = 1; k < n; ++k) {
    const auto j = (self + k) % n;  // start with different members, so not all devices send to the same member first
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      const auto& source = sources[static_cast<std::size_t>(turn)];
      const auto box = intersect(source.held, target_of(mesh, m, peer_at(j), turn).held);
      if (!box.any()) continue;
      auto placed = place(box, source, packed(box));
      const auto elems = box.elems();
      if (placed.box.row() == elems) {
        route.sends.push_back({j, placed.in_offset, elems, no_box});
        continue;
      }
      placed.out_offset = sent;
      route.sends.push_back({j, sent, elems, route.boxes.add(placed)});
      sent += elems;
    }
  }
  for (std::size_t turn = 0; turn < targets.size(); ++turn)
    if (const auto stays = intersect(sources[turn].held, targets[turn].held); stays.any())
      route.own.push_back(route.boxes.add(place(stays, sources[turn], targets[turn])));
  return route;
}

struct reduction_route {
  bool scatters = false;
  std::int64_t elems = 0;         // of the buffer
  std::int64_t result_elems = 0;  // of a shard of the result
  // reduce_scatter only:
  bool is_stacked = false;            // the blocks of the members, with padding, are adjacent in the buffer
  std::vector<std::int64_t> offsets;  // of the blocks in the buffer, or in the memory where they are packed
  std::vector<int> counts;            // number of elements of each block; 0 if it exceeds an int
  std::vector<int> packs;             // boxes from the buffer to the packed blocks
  int own = no_box;                   // box from the packed result to the result
  box_list boxes;

  /// Returns the elements of the block of member j.
  [[nodiscard]] std::int64_t block_elems(std::int64_t j) const {
    return offsets[static_cast<std::size_t>(j) + 1] - offsets[static_cast<std::size_t>(j)];
  }
};

/// Returns the route of the device at `me`.
///
///   reduce_scatter of [4] over 2 devices: offsets 0, 2, 4
inline reduction_route route_of(const mesh_shape& mesh, const reduction& r, const coordinates& me) {
  reduction_route route;
  route.scatters = classify(mesh, r) == collective_kind::reduce_scatter;
  route.elems = elements(local_extents(mesh, r.global, r.from));
  const auto target = layout_of(mesh, r.global, r.to, me);
  route.result_elems = target.elems();
  if (!route.scatters) return route;
  const auto n = mesh.size_of(r.axes);
  route.is_stacked = is_stacked(mesh, r.global, r.from, r.to, r.axes);
  const auto source = layout_of(mesh, r.global, r.from, me);
  std::int64_t at = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    const auto box = ranges_of(mesh, r.global, r.to, group_member(mesh, r.axes, me, j));
    const auto elems = route.is_stacked ? route.result_elems : box.elems();
    route.offsets.push_back(at);
    route.counts.push_back(elems <= largest_mpi_count ? static_cast<int>(elems) : 0);
    if (!route.is_stacked && elems > 0) {
      auto placed = place(box, source, packed(box));
      placed.out_offset = at;
      route.packs.push_back(route.boxes.add(placed));
    }
    at += elems;
  }
  route.offsets.push_back(at);
  if (!route.is_stacked && target.held.any()) route.own = route.boxes.add(place(target.held, packed(target.held), target));
  return route;
}

}  // namespace gspmd::detail
