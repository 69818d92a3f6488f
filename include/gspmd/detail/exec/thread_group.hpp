// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gspmd/detail/exec/lanes.hpp"
#include "gspmd/error.hpp"

/// How threads meet. Each member of a group has a slot; to arrive at the next meeting it writes its pointers, or a small
/// value, into its slot and then the number of the meeting. Who has seen that number in all slots has passed the meeting,
/// and holds everybody's pointers already: publishing and the barrier are one step.
///
/// Meetings alternate between two lanes of a slot. A member writes to a lane again two meetings later, when all others have
/// arrived at the meeting between, so they have read what it held.
namespace gspmd::detail {

inline constexpr std::size_t mail_bytes = 232;

struct alignas(cache_line_bytes) thread_lane {
  std::atomic<std::uint64_t> meeting{0};
  const void* in = nullptr;
  void* out = nullptr;
  alignas(8) unsigned char mail[mail_bytes] = {};  // begins on the line of `meeting`: 8 bytes travel with it
};

struct alignas(cache_line_bytes) thread_slot {
  thread_lane lanes[2];
  std::uint64_t meetings = 0;  // that its owner arrived at; only the owner looks
};

struct thread_group {
  explicit thread_group(std::vector<int> members) : devices(std::move(members)), slots(new thread_slot[devices.size()]) {}
  std::vector<int> devices;
  std::unique_ptr<thread_slot[]> slots;
};

/// Thrown on the devices that had to stop because another one failed. launch() reports the other one's error.
class stopped_by_peer : public error {
 public:
  explicit stopped_by_peer(int rank) : error("stopped because another rank failed", rank) {}
};

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// What the threads of one launch share.
///
/// When one of them fails the others stop at their next meeting, or at the one they are waiting in. Their buffers vanish
/// when they unwind, and a third thread may be reading them: so who stops waits until all threads have stopped, ended or
/// failed, and leaves only then.
class thread_session {
 public:
  explicit thread_session(int count) : ended_(new std::atomic<bool>[static_cast<std::size_t>(count)]), count_(count) {
    for (int i = 0; i < count; ++i) ended_[static_cast<std::size_t>(i)].store(false, std::memory_order_relaxed);
  }

  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool has_ended(int rank) const {
    return ended_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
  }

  /// The group of these members, the same for all that ask.
  thread_group& group_of(const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    auto& group = groups_[members];
    if (!group) group = std::make_unique<thread_group>(members);
    return *group;
  }

  /// Keeps the first failure.
  void fail(std::exception_ptr failure) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::move(failure);
    }
    failed_.store(true, std::memory_order_release);
  }
  void rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  /// The thread of `rank` takes part in nothing any more.
  void end(int rank) { ended_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release); }

  /// One more thread reads no peer's buffer any more; `threads` for those that never ran.
  void stop(int threads = 1) { stopped_.fetch_add(threads, std::memory_order_acq_rel); }
  void wait_until_all_stopped() const {
    while (stopped_.load(std::memory_order_acquire) < count_) std::this_thread::yield();
  }

 private:
  std::unique_ptr<std::atomic<bool>[]> ended_;
  std::map<std::vector<int>, std::unique_ptr<thread_group>> groups_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
  std::atomic<int> stopped_{0};
  int count_;
};

}  // namespace gspmd::detail
