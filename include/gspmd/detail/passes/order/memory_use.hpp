// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/plan.hpp"

/// Functions that find the steps that access the memory of a value, in a plan whose memory is placed.
namespace gspmd::detail {

constexpr std::int64_t bytes_of_shard(const planned_value& v) { return elements(v.local) * bytes_of(v.type); }

/// Returns true if a value may occupy any of `bytes` bytes at a place.
constexpr bool lies_in(const planned_value& v, memory_place::kind where, std::int64_t at, std::int64_t bytes) {
  using kind = memory_place::kind;
  const auto meets = [&](kind own, std::int64_t own_at) {
    if (own != where || own == kind::none) return false;
    return where == kind::arena ? at < own_at + bytes_of_shard(v) && own_at < at + bytes : at == own_at;
  };
  return meets(v.where.where, v.where.at) || (v.where.takes_turns() && meets(v.where.other, v.where.other_at));
}
/// Returns true if two values may share memory.
constexpr bool share_memory(const planned_value& a, const planned_value& b) {
  return lies_in(a, b.where.where, b.where.at, bytes_of_shard(b)) ||
         (b.where.takes_turns() && lies_in(a, b.where.other, b.where.other_at, bytes_of_shard(b)));
}
/// Returns true if a step may write to the memory of a value.
constexpr bool writes(const plan& p, const plan_step& s, const planned_value& v) {
  for (int k = 0; k < s.results.count; ++k)
    if (share_memory(v, p.values[p.slots[s.results.begin + k]])) return true;
  const auto scratch = facts_of(s).scratch_bytes(plan_view(p), s);
  return scratch > 0 && lies_in(v, memory_place::kind::arena, s.scratch, scratch);
}
constexpr bool reads(const plan& p, const plan_step& s, const planned_value& v) {
  for (int k = 0; k < s.operands.count; ++k)
    if (share_memory(v, p.values[p.slots[s.operands.begin + k]])) return true;
  return false;
}

/// Returns true if `v` is an input and a step computes an output for which the caller may pass the memory of that
/// input.
constexpr bool writes_over_input(const plan& p, const plan_step& s, const planned_value& v) {
  if (v.where.where != memory_place::kind::input) return false;
  for (int k = 0; k < s.results.count; ++k)
    for (std::size_t o = 0; o < p.shared_inputs.size(); ++o)
      if (p.shared_inputs[o] == v.where.at &&
          lies_in(p.values[p.slots[s.results.begin + k]], memory_place::kind::output, static_cast<std::int64_t>(o), 0))
        return true;
  return false;
}

}  // namespace gspmd::detail
