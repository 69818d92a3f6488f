// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/detail/ir/can_alias.hpp"
#include "gspmd/detail/run/checked_memory.hpp"
#include "gspmd/detail/run/step_checks.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

inline shard_place place_of(const plan_view& plan, int value, const void* shard, std::size_t leaf, std::size_t device) {
  const auto& v = plan.value(value);
  const auto begin = reinterpret_cast<std::uintptr_t>(shard);
  return {begin, begin + static_cast<std::uintptr_t>(elements(v.local) * bytes_of(v.type)), leaf, device};
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
              "; give it memory of its own, or just that of an input that step::can_alias allows");
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_read_later(std::size_t output, std::size_t input) {
  throw error("step: output " + std::to_string(output) + " is given the memory of input " + std::to_string(input) +
              ", which is read after the output is written; give it memory of its own (step::can_alias states the outputs "
              "and inputs that may share memory)");
}

/// Throws gspmd::error if the memory may not be used. `written` is scratch memory for the addresses of the outputs.
inline void require_usable_memory(const plan_view& plan, std::size_t devices, const void* const* inputs, void* const* outputs,
                                  std::vector<shard_place>& written) {
  written.clear();
  for (std::size_t d = 0; d < devices; ++d)
    for (std::size_t k = 0; k < plan.outputs.size(); ++k) {
      const auto p = place_of(plan, plan.outputs[k], outputs[d * plan.outputs.size() + k], k, d);
      if (p.begin == p.end) continue;
      if (p.begin == 0) throw_no_memory(plan, plan.inputs.size() + k);
      written.push_back(p);
    }
  std::sort(written.begin(), written.end(), [](const shard_place& a, const shard_place& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < written.size(); ++i)
    if (written[i].begin < written[i - 1].end) throw_two_outputs(written[i - 1], written[i]);
  for (std::size_t d = 0; d < devices; ++d)
    for (std::size_t k = 0; k < plan.inputs.size(); ++k) {
      const auto read = place_of(plan, plan.inputs[k], inputs[d * plan.inputs.size() + k], k, d);
      if (read.begin == read.end) continue;
      if (read.begin == 0) throw_no_memory(plan, k);
      const auto first =
          std::partition_point(written.begin(), written.end(), [&](const shard_place& p) { return p.end <= read.begin; });
      if (first == written.end() || first->begin >= read.end) continue;
      const bool is_same = first->begin == read.begin && first->end == read.end && first->device == d;
      if (!is_same) throw_partial_overlap(first->leaf, k);
      if (!can_alias(plan, first->leaf, k)) throw_read_later(first->leaf, k);
    }
}

template <class Once>
void checked_memory::check(const plan_view& plan, std::size_t devices, const void* const* inputs, void* const* outputs) {
  const std::size_t in = devices * plan.inputs.size(), out = devices * plan.outputs.size();
  const auto is_known = [&](const std::vector<const void*>& known) {
    return known.size() == in + out && std::equal(inputs, inputs + in, known.begin()) &&
           std::equal(outputs, outputs + out, known.begin() + static_cast<std::ptrdiff_t>(in));
  };
  if (is_known(last_)) return;
  last_.swap(before_);
  if (is_known(last_)) return;
  last_.clear();  // filled only after the whole check has passed
  require_usable_memory(plan, devices, inputs, outputs, written_);
  last_.assign(inputs, inputs + in);
  last_.insert(last_.end(), outputs, outputs + out);
}
GSPMD_COMPILED_ONCE(void checked_memory::check<once>(const plan_view&, std::size_t, const void* const*, void* const*));

}  // namespace gspmd::detail
