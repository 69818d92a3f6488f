// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/ir/ring.hpp"
#include "gspmd/detail/kernels/contraction.hpp"
#include "gspmd/detail/run/local_step.hpp"
#include "gspmd/detail/run/padding.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"
#include "gspmd/error.hpp"

/// An einsum that rotates the shards of an operand around a ring (GShard Fig. 4c). Each device multiplies the shard
/// that it holds and passes the shard on. So each device uses all shards, but never holds all shards.
namespace gspmd::detail {

/// Returns the copy of the part [begin, begin + size) of a dim to a window. The array is dense. The extent of the
/// window in this dim is `room`.
inline placed_box place_window(const extents& whole, int dim, std::int64_t begin, std::int64_t size, std::int64_t room) {
  placed_box placed;
  std::int64_t in = 1, out = 1;
  for (int d = whole.count - 1; d >= 0; --d) {
    placed.box.add_major_dim(d == dim ? size : whole[d], in, out);
    if (d == dim) placed.in_offset = begin * in;
    in *= whole[d];
    out *= d == dim ? room : whole[d];
  }
  return placed;
}
/// Returns the copy in the other direction.
inline placed_box reversed(placed_box placed) {
  for (int d = 0; d < placed.box.rank; ++d) {
    const auto stride = placed.box.in_stride[d];
    placed.box.in_stride[d] = placed.box.out_stride[d];
    placed.box.out_stride[d] = stride;
  }
  const auto offset = placed.in_offset;
  placed.in_offset = placed.out_offset;
  placed.out_offset = offset;
  return placed;
}

/// The work of a device in one round of the ring. The device holds the shard of the device that is `away` places
/// ahead in the ring.
class window_turn {
 public:
  window_turn(const prepared_contraction& prepared, const plan_view& plan, const plan_step& s, const device_memory& device)
      : prepared_(prepared), device_(device), plan_(plan), s_(s), w_(planned_ring_of(plan, s)), bytes_(bytes_of(s.type)) {}

  /// Returns the buffer with the shard of the device that is `away` places ahead.
  [[nodiscard]] std::byte* shard(std::int64_t away, const ring_rounds& rounds) const {
    const auto& own = plan_.operand(s_, w_.operand);
    if (away == 0) return static_cast<std::byte*>(const_cast<void*>(device_.read(own.where)));
    return scratch(w_.buffers_at + rounds.buffer_of(away) * buffer_elems(elements(own.local)));
  }

  void multiply(std::int64_t away, const ring_rounds& rounds, bool first, bool last) const {
    const auto& own = plan_.operand(s_, w_.operand);
    const int dim = w_.dims[w_.operand];
    const auto room = own.local[dim];
    const auto members = ring{w_.axes}.size(*plan_.mesh);
    const auto parts = parts_of(*plan_.mesh, own.layout, dim);
    const auto index = part_index(*plan_.mesh, own.layout, dim, device_.at);
    const auto turn = ((index + away) % members + members) % members;
    const auto held = part_range(own.global[dim], parts, index - index % members + turn).size();

    std::int64_t valid[max_letters];
    kernels::read_bounds(plan_, s_, device_, valid);
    valid[w_.letter] = held;
    const int other = 1 - w_.operand;
    const std::byte* operands[2];
    operands[w_.operand] = shard(away, rounds);
    operands[other] = static_cast<const std::byte*>(device_.read(plan_.operand(s_, other).where));
    if (const int d = w_.dims[other]; d >= 0 && held > 0)
      operands[other] = part(plan_.operand(s_, other).local, d, turn * room, held, room, operands[other]);

    const auto contract = [&](std::byte* to, bool adds, bool is_last) {
      prepared_.run(*prepared_.plan, valid, operands[0], operands[1], to, scratch(0), adds, is_last);
    };
    auto* const out = static_cast<std::byte*>(device_.write(plan_.result(s_).where));
    const int d = w_.dims[2];
    if (d < 0) return contract(out, !first, last);
    if (held <= 0) return;
    const auto& whole = plan_.result(s_).local;
    const auto placed = place_window(whole, d, turn * room, held, room);
    auto* const here = w_.result_at < 0 ? out + placed.in_offset * bytes_ : scratch(w_.result_at);
    contract(here, false, true);
    if (w_.result_at >= 0 && elements(whole) > 0) copy_box(out, here, reversed(placed), bytes_);
  }

 private:
  [[nodiscard]] std::byte* scratch(std::int64_t at) const { return device_.arena + s_.scratch + at * bytes_; }
  /// Returns the part of the other operand that belongs to the shard.
  const std::byte* part(const extents& whole, int dim, std::int64_t begin, std::int64_t size, std::int64_t room,
                        const std::byte* from) const {
    const auto placed = place_window(whole, dim, begin, size, room);
    if (w_.operand_at < 0) return from + placed.in_offset * bytes_;
    auto* const window = scratch(w_.operand_at);
    if (elements(whole) == 0) return window;
    if (size < room) std::memset(window, 0, static_cast<std::size_t>(elements(whole) / whole[dim] * room * bytes_));
    copy_box(window, from, placed, bytes_);
    return window;
  }

  const prepared_contraction& prepared_;
  const device_memory& device_;
  const plan_view& plan_;
  const plan_step& s_;
  const planned_ring& w_;
  std::int64_t bytes_;
};

template <class>
prepared_contraction kernels::contract_round_ring::prepare(const plan_view& p, const plan_step& s) {
  return prepare_contraction(table_of<contraction_plan>(p)[static_cast<std::size_t>(planned_ring_of(p, s).contraction)], s.type);
}

/// Runs all rounds on the devices that `comm` holds.
template <class Comm>
void kernels::contract_round_ring::run(const prepared_contraction& prepared, const plan_view& plan, const plan_step& s,
                                       Comm& comm, const devices_here& here) {
  if constexpr (!requires(const ring& r, const ring_buffers& b) { comm.shift(*plan.mesh, r, b, &b); }) {
    throw error("this communicator has no shift, which limit_gather needs");
  } else {
    const device_memory* const devices = here.memory;
    const auto& w = planned_ring_of(plan, s);
    const ring r = ring_of(plan, s);
    const ring_rounds rounds(r.size(*plan.mesh), w.both_ways);
    const auto multiply = [&](std::int64_t away, bool first, bool last) {
      for (int d = 0; d < here.count; ++d) window_turn(prepared, plan, s, devices[d]).multiply(away, rounds, first, last);
    };
    const auto shard = [&](std::int64_t away) {
      return [&prepared, &plan, &s, &rounds, devices, away](std::int64_t d) -> void* {
        return window_turn(prepared, plan, s, devices[d]).shard(away, rounds);
      };
    };
    const auto inputs = [&](std::int64_t away) { return [to = shard(away)](std::int64_t d) -> const void* { return to(d); }; };
    multiply(0, true, rounds.ahead == 0);
    for (std::int64_t turn = 1; turn <= rounds.ahead; ++turn) {
      const auto ahead_from = inputs(turn - 1), behind_from = inputs(1 - turn);
      const auto ahead_to = shard(turn), behind_to = shard(-turn);
      const bool both = turn <= rounds.behind;
      const ring_buffers ahead{ahead_from, ahead_to}, behind{behind_from, behind_to};
      if (r.bytes > 0) comm.shift(*plan.mesh, r, ahead, both ? &behind : nullptr);
      if (both) multiply(-turn, false, false);
      multiply(turn, false, turn == rounds.ahead);
    }
  }
}

}  // namespace gspmd::detail
