// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "gspmd/detail/transport/meeting.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Threads that synchronise in meetings (meeting.hpp).
struct thread_group {
  explicit thread_group(const std::vector<int>& members) : devices(members), slots(members.size()) {}
  std::vector<int> devices;
  std::vector<meeting_slot> slots;
};

/// The error on devices that had to stop because another device failed. launch() reports the error of the device that
/// failed.
class stopped_by_peer : public error {
 public:
  explicit stopped_by_peer(int rank) : error("stopped because another rank failed", rank) {}
};

/// The state that the threads of a launch share.
///
/// If one thread fails, the other threads stop at their next meeting, or at the current meeting if they wait. When a
/// thread unwinds, its buffers are destroyed, and a third thread may still read these buffers. So a thread that stops
/// waits until all threads have stopped, ended or failed, and only then unwinds.
class thread_session {
 public:
  explicit thread_session(int count)
      : ended_(static_cast<std::size_t>(count)),
        count_(count),
        pauses_(static_cast<unsigned>(count) <= std::thread::hardware_concurrency() ? pauses_with_core : pauses_without_core) {}

  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] int pauses() const { return pauses_; }  // of a waiting device, before it yields
  [[nodiscard]] bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] bool has_ended(int rank) const { return ended_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire); }

  /// Returns the group with these members. All callers with equal members get the same object.
  thread_group& group_of(const std::vector<int>& members) {
    const std::lock_guard lock(mutex_);
    for (auto& known : groups_)
      if (known.devices == members) return known;
    return groups_.emplace_back(members);
  }

  /// Stores the failure, unless a failure is stored already.
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

  /// Marks the thread of `rank` as ended: it calls no further collective.
  void end(int rank) { ended_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release); }

  /// Counts one more thread that no longer reads the buffers of peers, or `threads` threads that were never started.
  void stop(int threads = 1) { stopped_.fetch_add(threads, std::memory_order_acq_rel); }
  void wait_until_all_stopped() const {
    while (stopped_.load(std::memory_order_acquire) < count_) std::this_thread::yield();
  }

 private:
  std::vector<std::atomic<bool>> ended_;
  std::list<thread_group> groups_;  // a list, because devices keep references to its elements
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
  std::atomic<int> stopped_{0};
  int count_, pauses_;
};

}  // namespace gspmd::detail
