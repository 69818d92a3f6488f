// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Whether an object is in use. One that holds scratch memory serves one caller at a time; a second one gets an error instead of
/// wrong numbers.
class exclusive_use {
 public:
  exclusive_use() = default;
  exclusive_use(exclusive_use&&) noexcept {}  // the use is of the object, not of what it holds
  exclusive_use& operator=(exclusive_use&&) noexcept { return *this; }

  class held {
   public:
    explicit held(std::atomic<bool>& taken) : taken_(taken) {}
    held(const held&) = delete;
    held& operator=(const held&) = delete;
    ~held() { taken_.store(false, std::memory_order_release); }

   private:
    std::atomic<bool>& taken_;
  };
  /// Until the result is gone nobody else takes it. Throws gspmd::error: somebody has.
  [[nodiscard]] held take() {
    if (taken_.exchange(true, std::memory_order_acquire)) refuse_second_caller();
    return held(taken_);
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] static void refuse_second_caller() {
    throw error(
        "step: this object is running already, for another thread or for the call that this one stands in; it holds the "
        "scratch memory of one caller: make a step for each");
  }

  std::atomic<bool> taken_{false};
};

}  // namespace gspmd::detail
