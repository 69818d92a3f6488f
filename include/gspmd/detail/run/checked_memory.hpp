// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/detail/ir/may_overwrite.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/run/step_checks.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// The addresses of the shard of leaf `leaf` on the device with this number.
struct shard_place {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::size_t leaf = 0;
  std::size_t device = 0;
};
inline shard_place place_of(const plan_view& plan, int value, const void* shard, std::size_t leaf, std::size_t device) {
  const auto& v = plan.value(value);
  const auto begin = reinterpret_cast<std::uintptr_t>(shard);
  return {begin, begin + static_cast<std::uintptr_t>(elements(v.local) * bytes_of(v.type)), leaf, device};
}

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_no_memory(const plan_view& plan, std::size_t leaf) {
  throw error(leaf_text(plan, leaf) + " is given no memory: the pointer is null");
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_two_outputs(const shard_place& a, const shard_place& b) {
  throw error("step: " +
              (a.leaf == b.leaf ? "output " + std::to_string(a.leaf) + " is given overlapping memory on two devices"
                                : "outputs " + std::to_string(std::min(a.leaf, b.leaf)) + " and " +
                                      std::to_string(std::max(a.leaf, b.leaf)) + " are given memory that overlaps") +
              "; every output needs memory of its own");
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_partial_overlap(std::size_t output, std::size_t input) {
  throw error("step: output " + std::to_string(output) + " is given memory that overlaps input " + std::to_string(input) +
              "; give it memory of its own, or just that of an input that step::may_overwrite allows");
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_read_later(std::size_t output, std::size_t input) {
  throw error("step: output " + std::to_string(output) + " is given the memory of input " + std::to_string(input) +
              ", which is read after the output is written; give it memory of its own (step::may_overwrite says what may "
              "be shared)");
}

/// Throws gspmd::error if the memory may not be used. `written` is scratch memory for the addresses of the outputs.
template <class = once>
void require_usable_memory(const plan_view& plan, std::size_t devices, const void* const* inputs, void* const* outputs,
                           std::vector<shard_place>& written);

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
