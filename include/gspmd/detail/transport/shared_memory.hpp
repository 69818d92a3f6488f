// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/ring.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/combine.hpp"
#include "gspmd/detail/transport/movement_boxes.hpp"

/// The part of a device in a collective, if the device can read the buffers of its peers. Threads process their parts
/// concurrently between two barriers, the simulated backend processes them one after the other. Peers are identified
/// by their number in the group.
namespace gspmd::detail {

/// The buffers that the devices of a communicator send to a neighbour on a ring, and the buffers that receive, by
/// local device.
struct ring_buffers {
  peer_inputs from;
  peer_outputs to;
};

}  // namespace gspmd::detail

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// A single copy or fill of a device in a movement: copies a box of a member's input, or fills a box.
struct movement_part {
  std::int64_t member;  // -1: fills
  std::uint64_t bits;
  bool streams;
  placed_box box;
};
using part_visitor = void (*)(void* data, const movement_part& part);

/// Calls visit(data, part) for all copies and fills of the device at `me`, in order.
template <class = once>
void for_each_part(const mesh_shape& mesh, const movement& m, const coordinates& me, std::int64_t bytes_per_elem,
                   part_visitor visit, void* data) {
  const auto turns = turns_of(mesh, m);
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const auto target = target_of(mesh, m, me, turn, [&](const placed_box& gap, std::uint64_t bits) {
      visit(data, {-1, bits, false, gap});
    });
    if (!target.held.any()) continue;
    const bool streams = can_stream && target.held.elems() * bytes_per_elem >= stream_from_bytes;
    const auto copy_from = [&](std::int64_t j, const coordinates& peer) {
      const auto source = source_of(mesh, m, peer, turn);
      const auto part = intersect(source.held, target.held);
      if (part.any()) visit(data, {j, 0, streams, place(part, source, target)});
    };
    if (m.map != nullptr) {
      for_each_holder(mesh, m, target, me, turn,
                      [&](const coordinates& peer) { copy_from(group_index(mesh, m.axes, peer), peer); });
      continue;
    }
    const auto n = mesh.size_of(m.axes);
    const auto self = group_index(mesh, m.axes, me);
    for (std::int64_t k = 0; k < n; ++k) {
      const auto j = self + k < n ? self + k : self + k - n;  // each device starts with another peer
      copy_from(j, group_member(mesh, m.axes, me, j));
    }
  }
}
GSPMD_COMPILED_ONCE(void for_each_part<once>(const mesh_shape&, const movement&, const coordinates&, std::int64_t, part_visitor,
                                             void*));

inline void move_part(const movement_part& part, peer_inputs peer_in, void* out, std::int64_t bytes_per_elem) {
  if (part.member < 0) fill_box(out, part.bits, part.box, bytes_per_elem);
  else copy_box(out, peer_in(part.member), part.box, bytes_per_elem, part.streams);
}

/// Fills `out` of the device at `me`; peer_in(j) is the input of member j.
template <class = once>
void move_from_peers(const mesh_shape& mesh, const movement& m, const coordinates& me, peer_inputs peer_in, void* out,
                     std::int64_t bytes_per_elem) {
  bool any_streaming = false;
  auto move = [&](const movement_part& part) {
    any_streaming = any_streaming || part.streams;
    move_part(part, peer_in, out, bytes_per_elem);
  };
  for_each_part(
      mesh, m, me, bytes_per_elem, [](void* data, const movement_part& part) { (*static_cast<decltype(move)*>(data))(part); },
      &move);
  if (any_streaming) fence_streams();
}

/// The elements [begin, end) that member j of n reduces in an all_reduce. Chunks are whole cache lines, so no two
/// members write to the same line.
///
///   100 floats, 2 members: [0, 64) and [64, 100)
struct chunk {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
constexpr chunk chunk_of(std::int64_t elems, std::int64_t bytes_per_elem, std::int64_t n, std::int64_t j) {
  const auto line = static_cast<std::int64_t>(cache_line_bytes) / bytes_per_elem;
  const auto step = ((elems + n - 1) / n + line - 1) / line * line;
  const auto begin = j * step < elems ? j * step : elems;
  return {begin, begin + step < elems ? begin + step : elems};
}

/// all_reduce: reduces one chunk of the flat, padded buffers and writes it to all members. The `out` of a member may
/// be its `in`.
template <class = once>
void all_reduce_from_peers(const row_combiner& op, std::int64_t elems, std::int64_t n, std::int64_t self, peer_inputs peer_in,
                           peer_outputs peer_out) {
  const auto mine = chunk_of(elems, op.elem_bytes, n, self);
  if (mine.begin < mine.end) reduce_row_to_all(op, n, peer_in, peer_out, mine.begin * op.elem_bytes, mine.end - mine.begin);
}

/// The box that the device at `me` reduces in a reduce_scatter. A device computes the box after it has arrived, while
/// other members still arrive.
struct scattered_box {
  placed_box box;
  std::int64_t elems;  // 0: the device reduces nothing
};
template <class = once>
void find_scattered_box(const mesh_shape& mesh, const reduction& r, const coordinates& me, scattered_box& found) {
  const auto target = layout_of(mesh, r.global, r.to, me);
  found.elems = target.held.elems();
  if (found.elems > 0) found.box = place(target.held, layout_of(mesh, r.global, r.from, me), target);
}

/// reduce_scatter: reduces the own box of all `n` members into `out`, which must not be the `in` of any member.
template <class = once>
void reduce_scatter_from_peers(const row_combiner& op, const scattered_box& mine, std::int64_t n, peer_inputs peer_in,
                               void* out) {
  if (mine.elems == 0) return;
  const bool streaming = can_stream && mine.elems * op.elem_bytes >= stream_from_bytes;
  for (box_walk rows(mine.box); rows.is_there; rows.step())
    for (std::int64_t i = 0; i < rows.count; ++i)
      reduce_row(op, static_cast<std::byte*>(out) + (rows.out + i * rows.out_step) * op.elem_bytes, n, peer_in,
                 (rows.in + i * rows.in_step) * op.elem_bytes, rows.row, streaming);
  if (streaming) fence_streams();
}
inline void reduce_scatter_from_peers(const row_combiner& op, const mesh_shape& mesh, const reduction& r, const coordinates& me,
                                      peer_inputs peer_in, void* out) {
  scattered_box mine;
  find_scattered_box(mesh, r, me, mine);
  reduce_scatter_from_peers(op, mine, mesh.size_of(r.axes), peer_in, out);
}

/// Carries out the part of the device at `me` in an all_reduce or reduce_scatter over a group of at least two
/// members.
template <class = once>
void reduce_from_peers(const row_combiner& op, const mesh_shape& mesh, const reduction& r, const coordinates& me,
                       peer_inputs peer_in, peer_outputs peer_out) {
  const auto self = group_index(mesh, r.axes, me);
  if (classify(mesh, r) == collective_kind::all_reduce)
    all_reduce_from_peers(op, elements(local_extents(mesh, r.global, r.from)), mesh.size_of(r.axes), self, peer_in, peer_out);
  else reduce_scatter_from_peers(op, mesh, r, me, peer_in, peer_out(self));
}

GSPMD_COMPILED_ONCE(void move_from_peers<once>(const mesh_shape&, const movement&, const coordinates&, peer_inputs, void*,
                                               std::int64_t));
GSPMD_COMPILED_ONCE(void all_reduce_from_peers<once>(const row_combiner&, std::int64_t, std::int64_t, std::int64_t, peer_inputs,
                                                     peer_outputs));
GSPMD_COMPILED_ONCE(void find_scattered_box<once>(const mesh_shape&, const reduction&, const coordinates&, scattered_box&));
GSPMD_COMPILED_ONCE(void reduce_scatter_from_peers<once>(const row_combiner&, const scattered_box&, std::int64_t, peer_inputs,
                                                         void*));
GSPMD_COMPILED_ONCE(void reduce_from_peers<once>(const row_combiner&, const mesh_shape&, const reduction&, const coordinates&,
                                                 peer_inputs, peer_outputs));

/// Carries out a reduction over a group with a single device, which is a copy of its box.
inline void reduce_alone(const mesh_shape& mesh, const reduction& r, const coordinates& me, const void* in, void* out,
                         std::int64_t bytes_per_elem) {
  if (in == out) return;
  move_from_peers(
      mesh, movement{r.global, r.from, r.to, 0}, me, [in](std::int64_t) { return in; }, out, bytes_per_elem);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
