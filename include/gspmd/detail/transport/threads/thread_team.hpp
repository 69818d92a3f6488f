// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/detail/transport/threads/float_environment.hpp"
#include "gspmd/error.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace gspmd::detail {

/// Hints to the processor that the thread spins.
inline void pause_spinning() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#endif
}

/// The threads of a device: the thread that calls run(), which is number 0, and `count` - 1 helpers, which live as
/// long as the object. A helper that waits for the next job first spins, then yields the processor, then sleeps until
/// thread 0 wakes it. Thread 0 waits for the helpers in the same way. If there are more threads than processors,
/// waiting threads sleep immediately: a thread that yields waits for the whole time slice of the next thread.
///
/// Helpers compute each job in the floating-point environment that thread 0 has when it calls run().
///
///   member              writer      when                          readers        when
///   call_, context_,    thread 0    before it adds 1 to begun_    the helpers    after they see the new begun_, until
///   environment_                                                                 they subtract 1 from left_
///   left_               thread 0    sets it before it adds 1      thread 0       until it is 0
///                                   to begun_
///                       helpers     subtract 1 when their part
///                                   ends
///   failures_[k]        thread k    before it subtracts 1         thread 0       when left_ is 0
///   ends_               end()       before it adds 1 to begun_    the helpers    after they see the new begun_
///
/// begun_ is written with release and read with acquire. left_ is decremented with release and read with acquire.
class thread_team {
 public:
  /// Throws gspmd::error if `count` is less than 1, or if a thread cannot be started. If `spins`, waiting threads
  /// spin and yield before they sleep. This is faster if each thread has a processor.
  explicit thread_team(int count, bool spins) : failures_(static_cast<std::size_t>(count > 0 ? count : 0)), spins_(spins) {
    if (count < 1) throw error("threads_per_device: a device has " + std::to_string(count) + " threads; give it one or more");
    threads_.reserve(failures_.size());
    try {
      for (int k = 1; k < count; ++k) threads_.emplace_back([this, k] { work(k); });
    } catch (const std::exception& failure) {
      end();
      throw error(std::string("threads_per_device: cannot start a thread: ") + failure.what());
    }
  }
  thread_team(const thread_team&) = delete;
  thread_team& operator=(const thread_team&) = delete;
  ~thread_team() { end(); }

  [[nodiscard]] int count() const { return static_cast<int>(failures_.size()); }

  /// Calls f(k) for each k < count() in thread k, and returns when all calls have returned. If calls throw, rethrows
  /// the exception of the thread with the smallest number.
  template <class F>
  void run(F&& f) {
    using function = std::remove_reference_t<F>;
    run([](void* given, int k) { (*static_cast<function*>(given))(k); },
        const_cast<void*>(static_cast<const void*>(std::addressof(f))));
  }

 private:
  void run(void (*call)(void*, int), void* context) {
    if (threads_.empty()) return call(context, 0);
    call_ = call;
    context_ = context;
    environment_ = float_environment::of_this_thread();
    left_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    begin();
    call_part(0);
    for (int tries = 0, left = 0; (left = left_.load(std::memory_order_acquire)) != 0; ++tries) wait(left_, left, tries, ended_);
    for (auto& failure : failures_)
      if (failure) {
        const auto first = std::exchange(failure, nullptr);
        for (auto& other : failures_) other = nullptr;
        std::rethrow_exception(first);
      }
  }
  void begin() {
    begun_.fetch_add(1, std::memory_order_release);
    wake(begins_);
  }
  void call_part(int k) {
    try {
      call_(context_, k);
    } catch (...) {
      failures_[static_cast<std::size_t>(k)] = std::current_exception();
    }
  }
  /// Spins, yields or sleeps, depending on `tries`, until `value` may differ from `seen`.
  template <class T>
  void wait(const std::atomic<T>& value, T seen, int tries, std::condition_variable& wakes) {
    if (spins_ && tries < spins_of_waiting_thread) return pause_spinning();
    if (spins_ && tries < spins_of_waiting_thread + yields_of_waiting_thread) return std::this_thread::yield();
    std::unique_lock lock(mutex_);
    wakes.wait(lock, [&] { return value.load(std::memory_order_acquire) != seen; });
  }
  /// Wakes the threads that wait for a value that the caller has written. The lock is for a thread that has checked
  /// the value and does not sleep yet.
  void wake(std::condition_variable& those) {
    { const std::lock_guard lock(mutex_); }
    those.notify_all();
  }
  void work(int k) {
    for (std::uint32_t seen = 0;; ++seen) {
      for (int tries = 0; begun_.load(std::memory_order_acquire) == seen; ++tries) wait(begun_, seen, tries, begins_);
      if (ends_) return;
      environment_.set();
      call_part(k);
      if (left_.fetch_sub(1, std::memory_order_release) == 1) wake(ended_);
    }
  }
  void end() {
    ends_ = true;
    begin();
    for (auto& t : threads_) t.join();
    threads_.clear();
  }

  alignas(64) std::atomic<std::uint32_t> begun_{0};
  void (*call_)(void*, int) = nullptr;
  void* context_ = nullptr;
  float_environment environment_;
  bool ends_ = false;
  alignas(64) std::atomic<int> left_{0};
  std::vector<std::exception_ptr> failures_;
  std::vector<std::thread> threads_;
  bool spins_;
  std::mutex mutex_;  // for sleeping
  std::condition_variable begins_, ended_;
};

}  // namespace gspmd::detail
