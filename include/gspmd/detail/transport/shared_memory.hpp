// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/ring.hpp"
#include "gspmd/detail/kernels/lanes.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/combine.hpp"
#include "gspmd/detail/transport/movement_boxes.hpp"

/// The share of one device in a collective when it can read the buffers of its peers. Threads do their shares at once
/// between two barriers, the simulated backend one after the other. Peers are called by their number in the group.
namespace gspmd::detail {

/// From the number of a member to its buffer: refers to a function object and forgets its type, so that the shares below are
/// compiled once and not for every communicator.
template <class Pointer>
class peer_buffers {
 public:
  template <class F>
  peer_buffers(const F& f)  // NOLINT(google-explicit-constructor): any such function will do
      : f_(&f), call_([](const void* g, std::int64_t j) -> Pointer { return (*static_cast<const F*>(g))(j); }) {}
  Pointer operator()(std::int64_t j) const { return call_(f_, j); }

 private:
  const void* f_;
  Pointer (*call_)(const void*, std::int64_t);
};
using peer_inputs = peer_buffers<const void*>;
using peer_outputs = peer_buffers<void*>;

/// What the devices that a communicator holds hand to a neighbour on a ring, and where they put what arrives; by local device.
struct ring_buffers {
  peer_inputs from;
  peer_outputs to;
};

}  // namespace gspmd::detail

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Calls `f` with an integer that has as many bytes as an element.
template <class F>
inline void with_bits(std::int64_t bytes_per_elem, F f) {
  if (bytes_per_elem == 1) f(std::uint8_t{});
  else if (bytes_per_elem == 4) f(std::uint32_t{});
  else f(std::uint64_t{});
}
inline void copy_bytes(void* out, const void* in, const placed_box& placed, std::int64_t bytes_per_elem, bool streaming) {
  with_bits(bytes_per_elem, [&](auto element) {
    using E = decltype(element);
    copy_box(static_cast<E*>(out), static_cast<const E*>(in), placed, streaming);
  });
}
inline void fill_bytes(void* out, std::uint64_t bits, const placed_box& placed, std::int64_t bytes_per_elem) {
  with_bits(bytes_per_elem, [&](auto element) {
    using E = decltype(element);
    fill_box(static_cast<E*>(out), static_cast<E>(bits), placed);
  });
}

/// Fills `out` of the device at `me`; peer_in(j) is the input of member j.
inline void move_from_peers(const mesh_shape& mesh, const movement& m, const coordinates& me, peer_inputs peer_in, void* out,
                            std::int64_t bytes_per_elem) {
  bool any_streaming = false;
  const auto turns = turns_of(m);
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const auto target =
        target_of(mesh, m, me, turn, [&](const placed_box& gap) { fill_bytes(out, m.map->fill, gap, bytes_per_elem); });
    if (!target.held.any()) continue;
    const bool streaming = can_stream && target.held.elems() * bytes_per_elem >= stream_from_bytes;
    any_streaming = any_streaming || streaming;
    const auto copy_from = [&](std::int64_t j, const coordinates& peer) {
      const auto source = source_of(mesh, m, peer, turn);
      const auto part = intersect(source.held, target.held);
      if (part.any()) copy_bytes(out, peer_in(j), place(part, source, target), bytes_per_elem, streaming);
    };
    if (m.map != nullptr) {
      for_each_holder(mesh, m, target, me, turn,
                      [&](const coordinates& peer) { copy_from(group_index(mesh, m.axes, peer), peer); });
      continue;
    }
    const auto n = mesh.size_of(m.axes);
    const auto self = group_index(mesh, m.axes, me);
    for (std::int64_t k = 0; k < n; ++k) {
      const auto j = self + k < n ? self + k : self + k - n;  // everyone starts at another peer
      copy_from(j, group_member(mesh, m.axes, me, j));
    }
  }
  if (any_streaming) fence_streams();
}

/// The elements [begin, end) that member j of n reduces in an all_reduce: whole cache lines, so that no two members
/// write to the same one.
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

/// all_reduce: reduces one chunk of the flat, padded buffers and writes it to all members. Their `out` may be their `in`.
template <class T>
void all_reduce_from_peers(monoid kind, std::int64_t elems, std::int64_t n, std::int64_t self, peer_inputs peer_in,
                           peer_outputs peer_out) {
  const auto mine = chunk_of(elems, static_cast<std::int64_t>(sizeof(T)), n, self);
  if (mine.begin == mine.end) return;
  with_monoid<T>(kind, [&](auto op, auto element) {
    using E = decltype(element);
    reduce_row_to_all<decltype(op), E>(
        n, [&](std::int64_t j) { return static_cast<const E*>(peer_in(j)) + mine.begin; },
        [&](std::int64_t j) { return static_cast<E*>(peer_out(j)) + mine.begin; }, mine.end - mine.begin);
  });
}

/// reduce_scatter: reduces the box of the device at `me` from all members into its own `out`, which is nobody's `in`.
template <class T>
void reduce_scatter_from_peers(const mesh_shape& mesh, const reduction& r, const coordinates& me, peer_inputs peer_in, T* out) {
  const auto target = layout_of(mesh, r.global, r.to, me);
  if (!target.held.any()) return;
  const auto source = layout_of(mesh, r.global, r.from, me);
  const auto placed = place(target.held, source, target);
  const auto n = mesh.size_of(r.axes);
  const bool streaming = can_stream && target.held.elems() * static_cast<std::int64_t>(sizeof(T)) >= stream_from_bytes;
  with_monoid<T>(r.kind, [&](auto op, auto element) {
    using E = decltype(element);
    E* const to = reinterpret_cast<E*>(out) + placed.out_offset;
    for_each_row(placed.box, [&](std::int64_t in_at, std::int64_t out_at, std::int64_t row) {
      const auto source_row = [&](std::int64_t j) { return static_cast<const E*>(peer_in(j)) + placed.in_offset + in_at; };
      reduce_row<decltype(op), E>(to + out_at, n, source_row, row, streaming);
    });
  });
  if (streaming) fence_streams();
}

/// The share of the device at `me` in either reduction over a group of at least two. The caller knows which one it is.
template <class T>
void reduce_from_peers(const mesh_shape& mesh, const reduction& r, const coordinates& me, peer_inputs peer_in,
                       peer_outputs peer_out) {
  const auto self = group_index(mesh, r.axes, me);
  if (classify(mesh, r) == collective_kind::all_reduce)
    all_reduce_from_peers<T>(r.kind, elements(local_extents(mesh, r.global, r.from)), mesh.size_of(r.axes), self, peer_in,
                             peer_out);
  else reduce_scatter_from_peers<T>(mesh, r, me, peer_in, static_cast<T*>(peer_out(self)));
}

/// A reduction over a group of one device is a copy of its box.
template <class T>
void reduce_alone(const mesh_shape& mesh, const reduction& r, const coordinates& me, const T* in, T* out) {
  if (in == out) return;
  const movement cut{r.global, r.from, r.to, 0};
  move_from_peers(
      mesh, cut, me, [in](std::int64_t) { return in; }, out, sizeof(T));
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
