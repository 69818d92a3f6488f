// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/transport/movement_boxes.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

template <class Once>
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

template <class Once>
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
GSPMD_COMPILED_ONCE(void move_from_peers<once>(const mesh_shape&, const movement&, const coordinates&, peer_inputs, void*,
                                               std::int64_t));

template <class Once>
void all_reduce_from_peers(const row_combiner& op, std::int64_t elems, std::int64_t n, std::int64_t self, peer_inputs peer_in,
                           peer_outputs peer_out) {
  const auto mine = chunk_of(elems, op.elem_bytes, n, self);
  if (mine.begin < mine.end) reduce_row_to_all(op, n, peer_in, peer_out, mine.begin * op.elem_bytes, mine.end - mine.begin);
}
GSPMD_COMPILED_ONCE(void all_reduce_from_peers<once>(const row_combiner&, std::int64_t, std::int64_t, std::int64_t, peer_inputs,
                                                     peer_outputs));

template <class Once>
void find_scattered_box(const mesh_shape& mesh, const reduction& r, const coordinates& me, scattered_box& found) {
  const auto target = layout_of(mesh, r.global, r.to, me);
  found.elems = target.held.elems();
  if (found.elems > 0) found.box = place(target.held, layout_of(mesh, r.global, r.from, me), target);
}
GSPMD_COMPILED_ONCE(void find_scattered_box<once>(const mesh_shape&, const reduction&, const coordinates&, scattered_box&));

template <class Once>
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
GSPMD_COMPILED_ONCE(void reduce_scatter_from_peers<once>(const row_combiner&, const scattered_box&, std::int64_t, peer_inputs,
                                                         void*));

template <class Once>
void reduce_from_peers(const row_combiner& op, const mesh_shape& mesh, const reduction& r, const coordinates& me,
                       peer_inputs peer_in, peer_outputs peer_out) {
  const auto self = group_index(mesh, r.axes, me);
  if (classify(mesh, r) == collective_kind::all_reduce)
    all_reduce_from_peers(op, elements(local_extents(mesh, r.global, r.from)), mesh.size_of(r.axes), self, peer_in, peer_out);
  else reduce_scatter_from_peers(op, mesh, r, me, peer_in, peer_out(self));
}
GSPMD_COMPILED_ONCE(void reduce_from_peers<once>(const row_combiner&, const mesh_shape&, const reduction&, const coordinates&,
                                                 peer_inputs, peer_outputs));

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
