// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// The flag of an object that serves one caller at a time, because it holds scratch memory. A second caller gets an
/// error instead of wrong numbers.
class exclusive_use {
 public:
  exclusive_use() = default;
  exclusive_use(exclusive_use&&) noexcept {}  // the flag belongs to the object, so a move does not transfer it
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
  /// Marks the object as in use until the result is destroyed. Throws gspmd::error if the object is in use already.
  [[nodiscard]] held take() {
    if (taken_.exchange(true, std::memory_order_acquire)) refuse_second_caller();
    return held(taken_);
  }

 private:
  template <class = once>
  [[noreturn, gnu::cold, gnu::noinline]] static void refuse_second_caller();

  std::atomic<bool> taken_{false};
};

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/transport/exclusive_use.ipp"
#endif
