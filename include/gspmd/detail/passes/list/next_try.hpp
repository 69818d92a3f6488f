// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/cut_axis.hpp"
#include "gspmd/detail/passes/list/save_memory.hpp"
#include "gspmd/detail/support/text.hpp"

/// A program is planned once, or again: on a mesh with an axis cut, or at a level of saving. After each try stands what comes next.
namespace gspmd::detail {

/// A try to plan a program: what it found.
struct planned_try {
  axis_cut cut;             // that its reshapes need; then the others are not looked at
  bool is_refused = false;  // for what it would send
  std::int64_t holds = 0;   // bytes on a device; looked at where the mesh has a limit
};

/// Where the search for the least that has to be given up stands. A level is tried as a whole; of one that fits the least number of inputs is
/// looked for by halves, to a 128th of them.
struct saving_search {
  int saving = 0;                  // what is tried (save_memory.hpp)
  int low = 0, high = 0, all = 0;  // inputs that give way: too few, enough, and those that may
};

struct next_try {
  enum class way : std::uint8_t { none, on_cut_mesh, saving_more } is;
  bool was_best;         // the one that was looked at, of those so far
  saving_search search;  // of the next
};

/// Returns what comes after a try; `least`: what the best one of those before it holds. Both paths read this: the compiler goes from type to
/// type, the run time from value to value.
///
///   an axis to cut                                        the same on the mesh with that cut
///   more than a device may hold, and not all is saved     the next level; a refused one is passed over, but for the first
///   all of level 1, 2 or, with states, 3, or some of it   half as many inputs as fit, or more than did not
///   else                                                  nothing
constexpr next_try after(const planned_try& t, const plan_request& request, std::int64_t least, saving_search s,
                         span<const node> nodes) {
  using enum next_try::way;
  if (t.cut.axis >= 0) return {on_cut_mesh, false, s};
  const int level = saving_level(s.saving), some = inputs_giving_way(s.saving);
  if (request.most_memory <= 0 || (level == 0 && t.is_refused)) return {none, true, s};
  const bool fits = !t.is_refused && t.holds <= request.most_memory;
  const bool is_best = level == 0 || (some > 0 ? fits : !t.is_refused && t.holds < least);
  if (some > 0) (fits ? s.high : s.low) = some;
  else if ((is_best ? t.holds : least) > request.most_memory)
    return {level < most_saving_of(nodes) ? saving_more : none, is_best, {level + 1}};
  else if (fits && level >= 1 && level <= (most_saving_of(nodes) == most_saving ? 3 : 2))  // without states 3 splits what 2 does
    s.high = s.all = static_cast<int>(cheapest_inputs(nodes, level, request.most_memory).size());
  if (s.high - s.low <= 1 + s.all / 128) return {none, is_best, s};
  const int half = inputs_between(nodes, level, request.most_memory, s.low, s.high);
  s.saving = level + 8 * half;
  return {half > 0 ? saving_more : none, is_best, s};
}

/// Why no plan fits.
constexpr text too_large(std::int64_t least, std::int64_t most) {
  return text("a device holds ") << least << " bytes, inputs, outputs and what is between them, in the plan that holds least; "
                                 << most << " are allowed: split more of the inputs, or use more devices";
}

}  // namespace gspmd::detail
