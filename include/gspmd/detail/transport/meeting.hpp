// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/transport/meeting_delay.hpp"

/// How threads, or processes that share memory, meet. Each member of a group has a slot; to arrive at the next meeting it
/// writes its pointers, or a small value, into its slot and then the number of the meeting. Who has read that number in
/// all slots has passed the meeting, and holds what everybody wrote: publishing and the barrier are one step. The number of
/// what it came for (meeting_subject.hpp) stands in the same word: a member that came for something else lets nobody pass.
///
/// Everything that members write for each other follows one rule: who has passed meeting k knows that all have arrived at k, so
/// all have read what was shown at k-1. A member that arrives at k passes it before it arrives at k+1: one that knows the others'
/// answer and goes ahead would overwrite what they still read, or a number that they still wait for.
///
///   memory                      its owner writes              the others read              until when
///   lane k % 2 of a slot        passed k-1 .. arrives at k    from passing k               they arrive at k+1
///   half h of a node_window     passed k'  .. arrives at k    from passing k               they arrive at k', the next meeting
///                                                                                          for which the other half is filled
///   part of a result in it      passed k   .. arrives at k+1  from passing k+1             the same k'
///   an input or output that     before it arrives at k, and   from passing k (of a result  they arrive at k+1
///     peers reach in place        after it passed k+1           they may write their part)
///   an input of what is under before it arrives at k, in    from passing k, which is in   they arrive at k+1
///     way (start, finish)         start, and after it passed    finish: meanwhile all
///                                 k+1, where finish ends        compute
///   an output of a reduction  its own part from passing k,  never: each other member      they arrive at k+1, in finish
///     that is under way           in finish                     writes its part from
///                                                               passing k
///   a shard that goes by its    before it sends the address,  from getting the address     they send "done"
///     address (permutations)      and after all said "done"
namespace gspmd::detail {

inline constexpr std::size_t mail_bytes = 224;

struct meeting_subject;

/// The word that a device writes to arrive: the number of the meeting, of which 32 bits tell meetings apart that a slot may hold, below
/// that of the subject.
constexpr std::uint64_t arrival_word(std::uint32_t subject, std::uint64_t meeting) {
  return static_cast<std::uint64_t>(subject) << 32 | static_cast<std::uint32_t>(meeting);
}

struct alignas(cache_line_bytes) meeting_lane {
  std::atomic<std::uint64_t> arrival{0};  // see arrival_word
  const meeting_subject* subject = nullptr;
  const void* in = nullptr;
  void* out = nullptr;
  alignas(8) unsigned char mail[mail_bytes] = {};  // begins on the line of `arrival`: 8 bytes travel with it
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "gspmd: meetings need 64-bit atomics without a lock");

struct alignas(cache_line_bytes) meeting_slot {
  meeting_lane lanes[2];
  std::uint64_t meetings = 0;  // that its owner arrived at; only the owner looks

  /// The lane of the meeting that the owner arrives at next, to be written before.
  meeting_lane& next_lane() { return lanes[(meetings + 1) & 1]; }
};

/// Pauses before a member gives way. More cost much where there are more members than cores. Where each has one they gain nothing while no
/// other program wants it; else who gives way gets its core back milliseconds later, however soon the others come: NPB's cg and is on two
/// ranks and cores beside compilers were fastest by far with a millisecond, of none, 50 us and one, also two such programs at once.
inline constexpr int pauses_without_core = 20, pauses_with_core = 20'000;

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// A member arrives at its next meeting, for `subject`: what it shows is there, and it may do something else before it waits, but arrive
/// nowhere in between.
inline void arrive_alone(meeting_slot& mine, std::uint32_t subject) {
  const auto meeting = ++mine.meetings;
  delay_at_meeting();
  mine.lanes[meeting & 1].arrival.store(arrival_word(subject, meeting), std::memory_order_release);
}
/// Member `self` of `n`, which has arrived, waits for the others; returns which lanes belong to the meeting. slot_of(j) is the slot of
/// member j. After each so many `pauses` idle(j, is_here) is called: it gives way to other threads, and throws if member j will
/// not come. differs(j, parity), which throws, is called if member j has come for something else. It calls it in turn: two that differ
/// both find out, whomever they wait for. The three are not copied: between the arrival and the wait a value that is read otherwise than it
/// was written, as copies of several pointers are, waits until the arrival has reached memory, a third of a meeting.
template <class SlotOf, class Idle, class Differs>
unsigned wait_for_all(std::int64_t n, std::int64_t self, std::uint32_t subject, int pauses, const SlotOf& slot_of,
                      const Idle& idle, const Differs& differs) {
  const auto meeting = slot_of(self).meetings;
  const auto parity = static_cast<unsigned>(meeting & 1);
  const auto word = arrival_word(subject, meeting);
  const auto check_all = [&] {
    for (std::int64_t j = 0; j < n; ++j) {
      const auto there = slot_of(j).lanes[parity].arrival.load(std::memory_order_acquire);
      if (there != word && static_cast<std::uint32_t>(there) == static_cast<std::uint32_t>(word)) differs(j, parity);
    }
  };
  for (std::int64_t j = 0; j < n; ++j) {
    const auto& arrived = slot_of(j).lanes[parity].arrival;
    const auto is_here = [&] { return arrived.load(std::memory_order_acquire) == word; };
    for (;;) {
      for (int i = 0; i < pauses && !is_here(); ++i) pause_briefly();
      if (is_here()) break;
      check_all();
      idle(j, is_here);
    }
  }
  delay_at_meeting();
  return parity;
}

}  // namespace gspmd::detail
