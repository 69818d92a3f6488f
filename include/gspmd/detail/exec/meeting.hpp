// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/exec/lanes.hpp"

/// How threads, or processes that share memory, meet. Each member of a group has a slot; to arrive at the next meeting it
/// writes its pointers, or a small value, into its slot and then the number of the meeting. Who has seen that number in
/// all slots has passed the meeting, and holds what everybody wrote: publishing and the barrier are one step.
///
/// Meetings alternate between two lanes of a slot. A member writes to a lane again two meetings later, when all others
/// have arrived at the meeting between, so they have read what it held.
namespace gspmd::detail {

inline constexpr std::size_t mail_bytes = 232;

struct alignas(cache_line_bytes) meeting_lane {
  std::atomic<std::uint64_t> meeting{0};
  const void* in = nullptr;
  void* out = nullptr;
  alignas(8) unsigned char mail[mail_bytes] = {};  // begins on the line of `meeting`: 8 bytes travel with it
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "gspmd: meetings need 64-bit atomics without a lock");

struct alignas(cache_line_bytes) meeting_slot {
  meeting_lane lanes[2];
  std::uint64_t meetings = 0;  // that its owner arrived at; only the owner looks

  /// The lane of the meeting that the owner arrives at next, to be written before.
  meeting_lane& next_lane() { return lanes[(meetings + 1) & 1]; }
};

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Member `self` of `n` arrives at the next meeting and waits for the others; returns which lanes belong to it.
/// slot_of(j) is the slot of member j. Once waiting takes longer, idle(j, is_here) is called again and again: it gives way
/// to other threads, and throws if member j will not come.
template <class SlotOf, class Idle>
unsigned arrive_and_wait(std::int64_t n, std::int64_t self, SlotOf slot_of, Idle idle) {
  meeting_slot& mine = slot_of(self);
  const auto meeting = ++mine.meetings;
  const auto parity = static_cast<unsigned>(meeting & 1);
  mine.lanes[parity].meeting.store(meeting, std::memory_order_release);
  for (std::int64_t j = 0; j < n; ++j) {
    const auto& arrived = slot_of(j).lanes[parity].meeting;
    const auto is_here = [&] { return arrived.load(std::memory_order_acquire) == meeting; };
    // more spinning costs much when there are more threads than cores, and gains nothing when there are not
    for (int i = 0; i < 20 && !is_here(); ++i) pause_briefly();
    while (!is_here()) idle(j, is_here);
  }
  return parity;
}

}  // namespace gspmd::detail
