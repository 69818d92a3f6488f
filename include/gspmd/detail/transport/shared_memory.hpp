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
                   part_visitor visit, void* data);

inline void move_part(const movement_part& part, peer_inputs peer_in, void* out, std::int64_t bytes_per_elem) {
  if (part.member < 0) fill_box(out, part.bits, part.box, bytes_per_elem);
  else copy_box(out, peer_in(part.member), part.box, bytes_per_elem, part.streams);
}

/// Fills `out` of the device at `me`; peer_in(j) is the input of member j.
template <class = once>
void move_from_peers(const mesh_shape& mesh, const movement& m, const coordinates& me, peer_inputs peer_in, void* out,
                     std::int64_t bytes_per_elem);

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
                           peer_outputs peer_out);

/// The box that the device at `me` reduces in a reduce_scatter. A device computes the box after it has arrived, while
/// other members still arrive.
struct scattered_box {
  placed_box box;
  std::int64_t elems;  // 0: the device reduces nothing
};
template <class = once>
void find_scattered_box(const mesh_shape& mesh, const reduction& r, const coordinates& me, scattered_box& found);

/// reduce_scatter: reduces the own box of all `n` members into `out`, which must not be the `in` of any member.
template <class = once>
void reduce_scatter_from_peers(const row_combiner& op, const scattered_box& mine, std::int64_t n, peer_inputs peer_in, void* out);
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
                       peer_inputs peer_in, peer_outputs peer_out);

/// Carries out a reduction over a group with a single device, which is a copy of its box.
inline void reduce_alone(const mesh_shape& mesh, const reduction& r, const coordinates& me, const void* in, void* out,
                         std::int64_t bytes_per_elem) {
  if (in == out) return;
  move_from_peers(
      mesh, movement{r.global, r.from, r.to, 0}, me, [in](std::int64_t) { return in; }, out, bytes_per_elem);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/transport/shared_memory.ipp"
#endif
