// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Returns true if operand `o` and result `r` of a step can use the same memory. The step then reads an index of the
/// operand for the last time before it writes this index.
constexpr bool works_in_place(const plan_view& p, const plan_step& s, int o, int r) {
  const auto& from = p.operand(s, o);
  const auto& to = p.result(s, r);
  if (from.type != to.type || elements(from.local) != elements(to.local)) return false;
  if (!facts_of(s).works_in_place(s)) return false;
  vec<std::uint8_t> kept(static_cast<std::size_t>(s.operands.count), 0);
  facts_of(s).mark_kept(p, s, kept.data());
  return kept[o] == 0;
}

/// Returns true if the caller can use the memory of input `input` for output `output`. The output is written first
///   by a step after the last one that reads the input     -> yes
///   by the step that reads it last, which works in place  -> yes
///   by a step before that one                             -> no
///   in a loop whose body reads the input                  -> no: the next iteration reads it again
constexpr bool can_alias(const plan_view& p, std::size_t output, std::size_t input) {
  if (p.shared_inputs[output] == static_cast<int>(input)) return true;
  const memory_place read{memory_place::kind::input, static_cast<std::int64_t>(input)};
  const memory_place written{memory_place::kind::output, static_cast<std::int64_t>(output)};
  int loop_end = -1;  // of the outermost loop around a step
  int last = -1;      // the last step that reads it, or the end of the loop around this step
  bool in_place = false;
  for (int i = 0; i < static_cast<int>(p.steps.size()); ++i) {
    const auto& s = p.steps[static_cast<std::size_t>(i)];
    if (facts_of(s).role == step_role::loop_begin && i > loop_end) loop_end = s.target;
    for (int o = 0; o < s.operands.count; ++o) {
      if (!(p.operand(s, o).where == read)) continue;
      in_place = i > loop_end && (last != i || in_place);
      last = i > loop_end ? i : loop_end;
      for (int r = 0; r < s.results.count; ++r)
        if (p.result(s, r).where.may_be(written)) in_place = in_place && works_in_place(p, s, o, r);
    }
  }
  for (int i = 0; i < static_cast<int>(p.steps.size()); ++i) {
    const auto& s = p.steps[static_cast<std::size_t>(i)];
    // the next step computes the rest: it reads and writes the same memory at other indices
    if (is_inner_part(p, s)) continue;
    for (int r = 0; r < s.results.count; ++r)
      if (p.result(s, r).where.may_be(written)) return last < i || (last == i && in_place);
  }
  return true;
}

}  // namespace gspmd::detail
