// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/ring.hpp"
#include "gspmd/detail/kernels/contraction.hpp"
#include "gspmd/detail/run/padding.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"
#include "gspmd/error.hpp"

/// An einsum while the shards of one operand go round a ring (GShard Fig. 4c): every device multiplies what it holds, hands it
/// on, and so sees all shards without ever holding them all.
namespace gspmd::detail {

/// The part [begin, begin + size) of a dim of a dense array, and the same in a window that has room for `room`.
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
/// The other way round.
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

/// The share of one device in one turn of the ring: the shard that it holds now, which was `away` places ahead of it.
template <class T, class Spec>
class window_turn {
 public:
  window_turn(const Spec& spec, const plan_view& plan, const plan_step& s, const device_memory& device)
      : spec_(spec), device_(device), plan_(plan), s_(s), w_(window_of(plan, s)) {}

  /// Where the shard lies that was `away` places ahead.
  [[nodiscard]] T* shard(std::int64_t away, const ring_rounds& rounds) const {
    const auto& own = plan_.operand(s_, w_.operand);
    if (away == 0) return const_cast<T*>(static_cast<const T*>(device_.read(own.where)));
    return scratch() + w_.buffers_at + rounds.buffer_of(away) * buffer_elems(elements(own.local));
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
    for (int b = 0; b < s_.bounds.count; ++b) {
      const auto& item = plan_.bounds[static_cast<std::size_t>(s_.bounds.begin + b)];
      valid[item.index] = valid_extent(plan_, item, device_.at);
    }
    valid[w_.letter] = held;
    const int other = 1 - w_.operand;
    const T* operands[2];
    operands[w_.operand] = shard(away, rounds);
    operands[other] = static_cast<const T*>(device_.read(plan_.operand(s_, other).where));
    if (const int d = w_.dims[other]; d >= 0 && held > 0)
      operands[other] = part(plan_.operand(s_, other).local, d, turn * room, held, room, operands[other]);

    T* const out = static_cast<T*>(device_.write(plan_.result(s_).where));
    const int d = w_.dims[2];
    if (d < 0) return contract<T>(spec_, valid, operands[0], operands[1], out, scratch(), !first, last);
    if (held <= 0) return;
    const auto& whole = plan_.result(s_).local;
    const auto placed = place_window(whole, d, turn * room, held, room);
    T* const here = w_.result_at < 0 ? out + placed.in_offset : scratch() + w_.result_at;
    contract<T>(spec_, valid, operands[0], operands[1], here, scratch());
    if (w_.result_at >= 0 && elements(whole) > 0) copy_box(out, here, reversed(placed), sizeof(T));
  }

 private:
  [[nodiscard]] T* scratch() const { return reinterpret_cast<T*>(device_.arena + s_.scratch); }
  /// The part of the other operand that belongs to the shard.
  const T* part(const extents& whole, int dim, std::int64_t begin, std::int64_t size, std::int64_t room, const T* from) const {
    const auto placed = place_window(whole, dim, begin, size, room);
    if (w_.operand_at < 0) return from + placed.in_offset;
    T* const window = scratch() + w_.operand_at;
    if (elements(whole) == 0) return window;
    if (size < room) std::fill_n(window, elements(whole) / whole[dim] * room, T{});
    copy_box(window, from, placed, sizeof(T));
    return window;
  }

  const Spec& spec_;
  const device_memory& device_;
  const plan_view& plan_;
  const plan_step& s_;
  const planned_window& w_;
};

/// All turns, on the devices that `comm` holds.
template <class T, class Spec, class Comm>
void kernels::windowed::run(const Spec& spec, const plan_view& plan, const plan_step& s, Comm& comm, const devices_here& here) {
  if constexpr (!requires(const ring& r, const ring_buffers& b) { comm.shift(*plan.mesh, r, b, &b); }) {
    throw error("this communicator has no shift, which limit_gather needs");
  } else {
    const device_memory* const devices = here.memory;
    const auto& w = window_of(plan, s);
    const ring r = ring_of(plan, s);
    const ring_rounds rounds(r.size(*plan.mesh), w.both_ways);
    const auto multiply = [&](std::int64_t away, bool first, bool last) {
      for (int d = 0; d < here.count; ++d) window_turn<T, Spec>(spec, plan, s, devices[d]).multiply(away, rounds, first, last);
    };
    const auto shard = [&](std::int64_t away) {
      return [&spec, &plan, &s, &rounds, devices, away](std::int64_t d) -> void* {
        return window_turn<T, Spec>(spec, plan, s, devices[d]).shard(away, rounds);
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
