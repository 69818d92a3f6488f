// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// The addresses of the shard of leaf `leaf` on the device with this number.
struct shard_place {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::size_t leaf = 0;
  std::size_t device = 0;
};

/// Checks the memory of a call of a step. No pointer may be null, and no output may overlap another output on the
/// devices of this process. An output may overlap an input only if it may replace this input.
///
/// Callers pass the same memory repeatedly, or swap two buffers. So memory that passed one of the last two checks is
/// not checked again.
class checked_memory {
 public:
  checked_memory() = default;
  checked_memory(checked_memory&&) = default;
  checked_memory& operator=(checked_memory&&) = default;
  [[gnu::noinline]] ~checked_memory() {}

  /// Checks the memory of `devices` devices: `inputs[d * plan.inputs.size() + k]` is input k of device d. Outputs
  /// have the same order. Throws gspmd::error.
  template <class = once>
  void check(const plan_view& plan, std::size_t devices, const void* const* inputs, void* const* outputs);

 private:
  std::vector<const void*> last_, before_;  // that passed the check: the shards of the inputs, then of the outputs
  std::vector<shard_place> written_;
};

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/run/checked_memory.ipp"
#endif
