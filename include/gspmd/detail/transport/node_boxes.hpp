// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/movement_boxes.hpp"

/// Movements of boxes with gaps, through memory that the ranks of a node share. The holder of a box packs the box
/// into this memory, and the receiver copies the box from there into its result. A message would be packed, copied by
/// MPI, and unpacked. Gathers do not use this memory: they do not pack whole shards, so this memory would cost them
/// one more copy.
namespace gspmd::detail {

/// The division of boxes into pieces. All members cut all boxes at the same indices, counted from the begin of each
/// box. So no member needs the number of pieces of another member. A piece has one index along the dims before `dim`,
/// up to `block` indices along `dim`, and all indices along the dims after `dim`.
///
///   largest box [4, 6], at most 12 elements: 2 pieces of [2, 6]
struct box_cut {
  /// No box has larger extents than `largest`, which are not 0. A piece has at most `most` elements; `most` is at
  /// least 1.
  box_cut(const buffer_layout& largest, std::int64_t most) {
    auto behind = largest.elems();
    for (int d = 0; d < largest.held.rank; ++d) extents[d] = largest.local[d];
    if (largest.held.rank == 0) return;
    while (true) {
      behind /= extents[dim];
      if (behind <= most) break;
      pieces *= extents[dim++];
    }
    const auto longest = most / behind;
    blocks = (extents[dim] + longest - 1) / longest;
    block = (extents[dim] + blocks - 1) / blocks;
    pieces *= blocks;
  }

  /// Returns piece `k` of a box. The piece is empty if the box is too small to have it.
  [[nodiscard]] held_ranges piece(held_ranges box, std::int64_t k) const {
    const auto keep = [&](int d, std::int64_t first, std::int64_t n) {
      const auto begin = box.begin[d] + first;
      box.end[d] = begin + n < box.end[d] ? begin + n : box.end[d];
      box.begin[d] = begin;
    };
    if (box.rank == 0) return box;
    keep(dim, k % blocks * block, block);
    k /= blocks;
    for (int d = dim - 1; d >= 0; --d) {
      keep(d, k % extents[d], 1);
      k /= extents[d];
    }
    return box;
  }

  std::int64_t extents[max_rank];
  int dim = 0;
  std::int64_t block = 1;
  std::int64_t blocks = 1;
  std::int64_t pieces = 1;
};

/// A list of boxes. It is smaller than a list of held_ranges, which has memory for max_rank dims.
class range_list {
 public:
  void add(const held_ranges& box) {
    rank_ = box.rank;
    for (int d = 0; d < box.rank; ++d) ends_.insert(ends_.end(), {box.begin[d], box.end[d]});
  }
  [[nodiscard]] held_ranges operator[](std::int64_t i) const {
    held_ranges box;
    box.rank = rank_;
    const auto* end = ends_.data() + i * 2 * rank_;
    for (int d = 0; d < rank_; ++d) {
      box.begin[d] = *end++;
      box.end[d] = *end++;
    }
    return box;
  }

 private:
  int rank_ = 0;
  std::vector<std::int64_t> ends_;
};

/// The boxes that one member copies to and from the shared memory, in a movement without a map.
struct node_boxes {
  std::int64_t n, self;
  buffer_layout source, target;
  buffer_layout largest;  // no box has larger extents
  range_list shown, taken;

  node_boxes(const mesh_shape& mesh, const movement& m, const coordinates& me)
      : n(mesh.size_of(m.axes)),
        self(group_index(mesh, m.axes, me)),
        source(source_of(mesh, m, me, 0)),
        target(layout_of(mesh, m.to_global, m.to, me)),
        largest(source) {
    for (int d = 0; d < m.to_global.count; ++d)
      if (target.local[d] < source.local[d]) largest.local[d] = target.local[d];
    for (std::int64_t j = 0; j < n; ++j) {
      const auto peer = group_member(mesh, m.axes, me, j);
      shown.add(intersect(source.held, ranges_of(mesh, m.to_global, m.to, peer)));
      taken.add(intersect(ranges_of(mesh, m.from_global, m.from, peer), target.held));
    }
  }
};

/// Carries out a movement of boxes through the shared memory. show(fill) is called equally often by all members and
/// does three things:
/// 1. It calls fill(memory), which writes up to `room` elements to memory that all members can read. `room` has at
///    least one cache line for each other member.
/// 2. It synchronises the members.
/// 3. It returns a function from a member to the memory of this member, valid until the second call after this one.
template <class Show>
void move_through_node(const node_boxes& b, std::int64_t room, std::int64_t bytes_per_elem, const void* in, void* out,
                       Show show) {
  const auto line = static_cast<std::int64_t>(cache_line_bytes) / bytes_per_elem;
  const auto most = room / (b.n - 1) / line * line;
  const box_cut cut(b.largest, most);
  const auto place_of = [&](std::int64_t owner, std::int64_t reader) { return ((reader - owner + b.n) % b.n - 1) * most; };
  if (const auto stays = intersect(b.source.held, b.target.held); stays.any())
    copy_box(out, in, place(stays, b.source, b.target), bytes_per_elem);
  for (std::int64_t k = 0; k < cut.pieces; ++k) {
    const auto memory_of = show([&](std::byte* memory) {
      for (std::int64_t i = 1; i < b.n; ++i) {
        const auto j = (b.self + i) % b.n;
        const auto piece = cut.piece(b.shown[j], k);
        if (piece.any())
          copy_box(memory + place_of(b.self, j) * bytes_per_elem, in, place(piece, b.source, packed(piece)), bytes_per_elem);
      }
    });
    for (std::int64_t i = 1; i < b.n; ++i) {
      const auto j = (b.self + i) % b.n;  // start with different members, so not all members read the same memory first
      const auto piece = cut.piece(b.taken[j], k);
      if (piece.any())
        copy_box(out, memory_of(j) + place_of(j, b.self) * bytes_per_elem, place(piece, packed(piece), b.target), bytes_per_elem);
    }
  }
}

}  // namespace gspmd::detail
