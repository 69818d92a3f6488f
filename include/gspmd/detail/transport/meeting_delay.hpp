// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/language.hpp"

#ifdef GSPMD_TEST_DELAYS
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#endif

/// Delays for tests. A fault in the protocol of meetings (meeting.hpp) shows only if one member is late at a certain
/// line. This may happen once in a thousand runs. The delays exist in a program that is compiled with
/// GSPMD_TEST_DELAYS, while an object of delayed_meetings exists. Members then sleep at random, before they arrive at
/// a meeting and before they read the data of other members.
namespace gspmd::detail {

#ifdef GSPMD_TEST_DELAYS

inline std::atomic<int> delayed_meetings_alive{0};

struct delayed_meetings {
  delayed_meetings() { ++delayed_meetings_alive; }
  delayed_meetings(const delayed_meetings&) = delete;
  delayed_meetings& operator=(const delayed_meetings&) = delete;
  ~delayed_meetings() { --delayed_meetings_alive; }
};

inline void delay_at_meeting() {
  if (delayed_meetings_alive.load(std::memory_order_relaxed) == 0) return;
  thread_local auto state = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) | 1;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  if (state % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(state / 4 % 300));
}

#else

inline void delay_at_meeting() {}

#endif

}  // namespace gspmd::detail
