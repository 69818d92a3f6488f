// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/support/language.hpp"

#if defined(__x86_64__) || (defined(__i386__) && defined(__SSE__))
#include <immintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace gspmd::detail {

/// The floating-point control state of a thread: the rounding mode, flush-to-zero, and the exceptions that trap. The
/// flags of raised exceptions are not included.
///
/// Reading the state takes an eighth of the time of fegetenv, which also saves and reloads the whole x87 unit.
class float_environment {
 public:
  /// Returns the state of the calling thread.
  static float_environment of_this_thread() {
    float_environment e;
#if defined(__x86_64__) || (defined(__i386__) && defined(__SSE__))
    e.vectors_ = _mm_getcsr() & ~vector_flags;
    asm volatile("fnstcw %0" : "=m"(e.x87_));
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(e.control_));
#else
    e.rounding_ = std::fegetround();
#endif
    return e;
  }
  /// Sets the state of the calling thread, if it differs.
  void set() const {
    const float_environment own = of_this_thread();
#if defined(__x86_64__) || (defined(__i386__) && defined(__SSE__))
    if (own.vectors_ != vectors_) _mm_setcsr((_mm_getcsr() & vector_flags) | vectors_);
    if (own.x87_ != x87_) asm volatile("fnclex\n\tfldcw %0" : : "m"(x87_));  // an old flag would trap if its exception traps now
#elif defined(__aarch64__)
    if (own.control_ != control_) asm volatile("msr fpcr, %0" : : "r"(control_));
#else
    if (own.rounding_ != rounding_) std::fesetround(rounding_);
#endif
  }

 private:
#if defined(__x86_64__) || (defined(__i386__) && defined(__SSE__))
  static constexpr std::uint32_t vector_flags = 0x3f;  // in MXCSR: raised exceptions
  std::uint32_t vectors_ = 0;
  std::uint16_t x87_ = 0;
#elif defined(__aarch64__)
  std::uint64_t control_ = 0;
#else
  int rounding_ = 0;
#endif
};

}  // namespace gspmd::detail
