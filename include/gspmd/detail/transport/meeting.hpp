// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/transport/meeting_delay.hpp"

/// A meeting is a barrier of the members of a group (threads, or processes that share memory) that also publishes
/// data. Each member has a slot. To arrive at its next meeting, a member writes its pointers, or a small value, into
/// its slot and then the number of the meeting. A member that has read this number in all slots has passed the
/// meeting and can read the data of all members. The word with the number also has the number of the member's
/// collective (meeting_subject.hpp). If a member arrives for another collective, no member passes.
///
/// All shared memory follows one rule. A member that has passed meeting k has seen all members arrive at k, so all
/// members have read the data that was published at k-1. A member that arrives at k must pass k before it arrives at
/// k+1. If a member that has the result already skipped this wait, it would overwrite data that other members still
/// read. It could also overwrite a number for which they still wait.
///
///   memory                       its owner writes              the other members read       until
///   lane k % 2 of a slot         from passing k-1 to           from passing k               they arrive at k+1
///                                arriving at k
///   half h of a node_window      from passing k' to            from passing k               they arrive at k'
///                                arriving at k
///   part of a result in half h   from passing k to             from passing k+1             they arrive at k'
///                                arriving at k+1
///   an input or output that      before it arrives at k, and   from passing k (and may      they arrive at k+1
///     peers access in place      after it passed k+1           write their part of a
///                                                              result)
///   an input of a started        before it arrives at k, in    from passing k, in finish;   they arrive at k+1
///     collective                 start, and after it passed    in between all members
///                                k+1, where finish ends        compute
///   an output of a started       its own part from passing     never; each other member     they arrive at k+1, in
///     reduction                  k, in finish                  writes its own part from     finish
///                                                              passing k
///   a shard whose address is     before it sends the address,  from receiving the address   they send "done"
///     sent (permutations)        and after all sent "done"
///
/// k' is a meeting for which the other half of the node_window is filled: the last such meeting before k in the
/// column of the owner, the next such meeting after k in the last column.
namespace gspmd::detail {

inline constexpr std::size_t mail_bytes = 224;

struct meeting_subject;

/// Returns the word that a device writes to arrive. Its upper half is the number of the subject. Its lower half is
/// the number of the meeting modulo 2^32, which distinguishes the meetings whose numbers a slot can hold.
constexpr std::uint64_t arrival_word(std::uint32_t subject, std::uint64_t meeting) {
  return static_cast<std::uint64_t>(subject) << 32 | static_cast<std::uint32_t>(meeting);
}

struct alignas(cache_line_bytes) meeting_lane {
  std::atomic<std::uint64_t> arrival{0};  // see arrival_word
  const meeting_subject* subject = nullptr;
  const void* in = nullptr;
  void* out = nullptr;
  alignas(8) unsigned char mail[mail_bytes] = {};  // begins on the cache line of `arrival`, so 8 bytes arrive together with it
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "gspmd: meetings need 64-bit atomics without a lock");

struct alignas(cache_line_bytes) meeting_slot {
  meeting_lane lanes[2];
  std::uint64_t meetings = 0;  // at which the owner has arrived; only the owner reads and writes it

  /// Returns the lane of the meeting at which the owner arrives next. The owner writes the lane before it arrives.
  meeting_lane& next_lane() { return lanes[(meetings + 1) & 1]; }
};

/// The number of pauses of a waiting member before it yields its core. If there are more members than cores, more
/// pauses cost much time. If each member has a core, many pauses gain nothing as long as no other program uses the
/// core. If another program does, a member that yields gets its core back milliseconds later, even if the other
/// members arrive soon. NPB's cg and is were run on two ranks and cores while compilers used the same cores, with
/// pauses of 0, 50 us and 1 ms. They were fastest by far with 1 ms, also when two of these programs ran.
inline constexpr int pauses_without_core = 20, pauses_with_core = 20'000;

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Arrives at the next meeting of a member, for `subject`, and returns without waiting. The data that the member
/// publishes must be written before. The member may do other work before it waits, but must not arrive at another
/// meeting in between.
inline void arrive_alone(meeting_slot& mine, std::uint32_t subject) {
  const auto meeting = ++mine.meetings;
  delay_at_meeting();
  mine.lanes[meeting & 1].arrival.store(arrival_word(subject, meeting), std::memory_order_release);
}
/// Member `self` of `n` has arrived and waits for the other members. Returns the index of the lanes of this meeting.
/// slot_of(j) is the slot of member j. After each `pauses` pauses, idle(j, is_here) is called. It yields to other
/// threads, and throws if member j will never arrive. If member j has arrived for another collective, differs(j,
/// parity) is called, which throws. The waiting member checks all members for this, so both members of a mismatch
/// detect it, whichever member they wait for.
///
/// The three functions are passed by reference, not copied. A copy of several pointers is read with another width
/// than it was written. Between the arrival and the wait, this read stalls until the arrival has reached memory. The
/// stall takes a third of the time of a meeting.
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
