// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/mpi/call.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/combine.hpp"
#include "gspmd/detail/transport/group_key.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/message_route.hpp"
#include "gspmd/detail/transport/mpi/joint_blocks.hpp"
#include "gspmd/detail/transport/mpi/large_reduction.hpp"
#include "gspmd/detail/transport/mpi/members.hpp"
#include "gspmd/detail/transport/mpi/movements.hpp"
#include "gspmd/detail/transport/mpi/reductions.hpp"
#include "gspmd/detail/transport/mpi/started_movements.hpp"
#include "gspmd/detail/transport/mpi/started_reductions.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {

/// The group of this process over some axes of a mesh, and its collectives. The rank of a process in the group's MPI
/// communicator is its member number.
///
/// A collective uses the first method that applies:
///  - a permutation: messages, or copies from buffers in node_memory;
///  - a small movement, if all members share a node: node_window;
///  - copies between the buffers of the members, if all buffers are in node_memory;
///  - a movement of boxes with gaps, up to a size: node_window (node_boxes.hpp);
///  - a reduction, if all members share a node: node_window or, for a large all_reduce if each member has a core,
///    messages;
///  - one MPI call that carries out the collective, directly between the user's buffers (message_plan.hpp);
///  - packing, messages and unpacking.
class mpi_group {
 public:
  /// Has the parameters of mpi_members.
  mpi_group(const mpi_channel& parent, const mesh_shape& mesh, axis_mask axes, mpi_workspace& work)
      : key_(mesh, axes), m_(parent, mesh, axes, work) {}

  [[nodiscard]] bool is_over(const mesh_shape& mesh, axis_mask axes) const { return key_.names(mesh, axes); }

  void move(const mesh_shape& mesh, const movement& m, const movement_route& route, dtype type, const void* from, void* to) {
    const auto e = mpi_elements_of(type);
    if (m_.size() == 1)
      return move_from_peers(
          mesh, m, m_.me, [&](std::int64_t) { return from; }, to, e.bytes);
    const auto* const in = static_cast<const std::byte*>(from);
    auto* const out = static_cast<std::byte*>(to);
    finish_all();
    m_.begin(subject_of(mesh, m, type));
    if (route.how == movement_route::way::permute) return movements_.permute(route, e, in, out);
    const auto bytes = route.shard_elems * e.bytes;
    if (bytes <= m_.work.small_shard_bytes && m_.window() != nullptr) return movements_.move_small(route, e.bytes, in, out);
    const bool shows_boxes = route.node && bytes <= largest_shown_shard_bytes && m_.window() != nullptr;
    if (!m_.work.memories.empty() && m_.window() != nullptr && m_.find_peers(in, nullptr)) {
      move_from_peers(mesh, m, m_.me, m_.shown(0), out, e.bytes);
      m_.window()->meet();
      return;
    }
    if (shows_boxes)
      return move_through_node(*route.node, node_window::half_bytes / e.bytes, e.bytes, in, out,
                               [this](auto fill) { return m_.window()->show(fill); });
    switch (route.how) {
      case movement_route::way::gather: return movements_.gather(e, route.block_elems, in, out);
      case movement_route::way::gather_to_boxes: {
        std::byte* const all = m_.work.send_scratch.at_least(route.memory.send_elems * e.bytes);
        movements_.gather(e, route.block_elems, in, all);
        for (const auto& r : route.receives) copy_box(out, all, route.boxes[r.box], e.bytes);
        return;
      }
      case movement_route::way::exchange: return movements_.exchange(e, route.block_elems, in, out);
      case movement_route::way::permute:
      case movement_route::way::messages: return movements_.exchange_messages(route, e, in, out);
    }
  }

  /// Starts movements (mpi_started_movements::start). If they cannot be started, carries them out.
  void start(const mesh_shape& mesh, span<const movement> all, const movement_route* const* routes, dtype type,
             const void* const* in, void* const* out) {
    if (m_.size() > 1 && m_.window() != nullptr) finish_all();
    if (started_.start(mesh, all, routes, type, in, out)) return;
    for (std::size_t k = 0; k < all.size(); ++k) move(mesh, all[k], *routes[k], type, in[k], out[k]);
  }
  /// Starts a reduction, or carries it out if it cannot be started: several reductions together, and small reductions
  /// inside a node. Several reductions that use messages may be started before the first one is finished.
  void start(const mesh_shape& mesh, span<const reduction> all, const reduction_route* const* routes, dtype type,
             const row_combiner& op, const void* const* in, void* const* out) {
    if (all.size() > 1 || m_.size() == 1) return reduce_together(mesh, all, routes, type, op, in, out);
    const auto& r = all[0];
    const auto& route = *routes[0];
    if (m_.window() == nullptr) {
      m_.begin(subject_of(mesh, r, type));
      started_reductions_.start(route, op, in[0], out[0]);
      return;
    }
    if (m_.work.memories.empty() || !is_large(route.elems * op.elem_bytes))
      return reduce(mesh, r, route, type, op, in[0], out[0]);
    finish_all();
    m_.begin(subject_of(mesh, r, type));
    started_reductions_.show(mesh, r, route, op, in[0], out[0]);
  }
  /// Finishes all started collectives.
  void finish_all() {
    started_.finish();
    started_reductions_.finish();
  }
  /// Finishes the collective that fills `out`, and all collectives that were started before it.
  void finish(const void* out) {
    started_.finish(out);
    started_reductions_.finish(out);
  }
  /// Lets the started collectives progress, without waiting.
  void go_on() {
    started_.go_on();
    started_reductions_.go_on();
  }

  void reduce(const mesh_shape& mesh, const reduction& r, const reduction_route& route, dtype type, const row_combiner& op,
              const void* from, void* to) {
    if (m_.size() == 1) return reduce_alone(mesh, r, m_.me, from, to, op.elem_bytes);
    const auto* const in = static_cast<const std::byte*>(from);
    auto* const out = static_cast<std::byte*>(to);
    const mpi_reduced how{type, r.reduced_by, op};
    finish_all();
    const auto bytes = route.elems * op.elem_bytes;
    m_.begin(subject_of(mesh, r, type));
    if (m_.window() != nullptr && !m_.work.memories.empty() && is_large(bytes) &&
        m_.find_peers(in, route.scatters ? nullptr : out)) {
      if (route.scatters) reduce_scatter_from_peers(op, mesh, r, m_.me, m_.shown(0), out);
      else all_reduce_from_peers(op, route.elems, m_.size(), m_.self, m_.shown(0), m_.shown(1));
      m_.window()->meet();
      return;
    }
    if (route.scatters) reductions_.reduce_scatter(route, how, in, out);
    else reductions_.all_reduce(how, route.elems, in, out);
  }

  /// Carries out several reductions of the same kind. Uses the buffers of the members if these are in node_memory.
  /// Otherwise packs them as one reduction.
  void reduce_together(const mesh_shape& mesh, span<const reduction> all, const reduction_route* const* routes, dtype type,
                       const row_combiner& op, const void* const* in, void* const* out) {
    const auto width = op.elem_bytes;
    if (m_.size() == 1) {
      for (std::size_t k = 0; k < all.size(); ++k) reduce_alone(mesh, all[k], m_.me, in[k], out[k], width);
      return;
    }
    finish_all();
    m_.begin(subject_of(mesh, all[0], type));
    const span<const reduction_route* const> parts(routes, all.size());
    std::int64_t elems = 0;
    for (const auto* route : parts) elems += route->scatters ? route->offsets.back() : route->elems;
    if (routes[0]->scatters && !m_.work.memories.empty() && m_.window() != nullptr && elems * width > m_.work.small_shard_bytes) {
      mpi_members::addresses<most_moved_together> mine{};
      for (std::size_t k = 0; k < all.size(); ++k) mine.of[k] = address_of(m_.work.memories, in[k]);
      m_.window()->arrive_with(mine);
      if (m_.find_shown<most_moved_together>(m_.window()->wait(), all.size())) {
        for (std::size_t k = 0; k < all.size(); ++k) reduce_scatter_from_peers(op, mesh, all[k], m_.me, m_.shown(k), out[k]);
        m_.window()->meet();
        return;
      }
    }
    const mpi_reduced how{type, all[0].reduced_by, op};
    std::byte* const packed = m_.work.send_scratch.at_least(elems * width);
    if (!routes[0]->scatters) {
      pack_whole(parts, width, in, packed);
      reductions_.all_reduce(how, elems, packed, packed);
      return unpack_whole(parts, width, packed, out);
    }
    pack_blocks(parts, m_.size(), width, in, packed, joint_blocks_);
    std::byte* const result = m_.work.receive_scratch.at_least(joint_blocks_.block_elems(m_.self) * width);
    reductions_.reduce_blocks(joint_blocks_, how, packed, result);
    unpack_block(parts, m_.self, width, result, out);
  }

  void shift(const mesh_shape& mesh, const ring& r, const ring_buffers& ahead, const ring_buffers* behind) {
    finish_all();
    const auto next = r.member_ahead(mesh, m_.me, 1), last = r.member_ahead(mesh, m_.me, -1);
    const auto bytes = static_cast<std::size_t>(r.bytes);
    const void* const sent_ahead = behind != nullptr ? behind->from(0) : nullptr;
    m_.begin(subject_of(mesh, r));
    if (!m_.work.memories.empty() && m_.window() != nullptr && m_.find_peers(ahead.from(0), sent_ahead)) {
      std::memcpy(ahead.to(0), m_.shown(0)(next), bytes);
      if (behind != nullptr) std::memcpy(behind->to(0), m_.shown(1)(last), bytes);
      m_.window()->meet();
      return;
    }
    m_.messages().receive(next, static_cast<std::byte*>(ahead.to(0)), r.bytes);
    m_.messages().send(last, static_cast<const std::byte*>(ahead.from(0)), r.bytes);
    if (behind != nullptr) {
      m_.messages().receive(last, static_cast<std::byte*>(behind->to(0)), r.bytes);
      m_.messages().send(next, static_cast<const std::byte*>(sent_ahead), r.bytes);
    }
    m_.messages().finish();
  }

  /// Returns the route of a collective. `joint`: the movement is for start().
  [[nodiscard]] movement_route new_route(const mesh_shape& mesh, const movement& m, bool joint = false) const {
    return route_of(mesh, m, m_.me, m_.self, m_.work.small_shard_bytes, joint);
  }
  [[nodiscard]] reduction_route new_route(const mesh_shape& mesh, const reduction& r) const { return route_of(mesh, r, m_.me); }

 private:
  /// Returns true if a buffer is too large for a reduction through the window in a single meeting.
  [[nodiscard]] bool is_large(std::int64_t bytes) {
    return bytes > m_.work.small_shard_bytes || (!m_.window()->is_small(bytes) && bytes > static_cast<std::int64_t>(mail_bytes));
  }

  group_key key_;
  mpi_members m_;
  mpi_movements movements_{m_};
  mpi_started_movements started_{m_};
  mpi_started_reductions started_reductions_{m_};
  mpi_reductions reductions_{m_, movements_};
  reduction_route joint_blocks_;  // of reduce_together
};

}  // namespace gspmd::detail
