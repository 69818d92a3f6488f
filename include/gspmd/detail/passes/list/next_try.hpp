// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/cut_axis.hpp"
#include "gspmd/detail/passes/request/save_memory.hpp"
#include "gspmd/detail/support/text.hpp"

/// A program is planned once or several times: on a mesh with an axis cut, or at another level of saving. This header
/// decides the next try.
namespace gspmd::detail {

/// The result of a try to plan a program.
struct planned_try {
  axis_cut cut;             // the cut that its reshapes need; if set, the other members are ignored
  bool is_refused = false;  // because of its communication
  std::int64_t holds = 0;   // bytes on a device, if the mesh has a limit
};

/// The progress of the search for the least saving that fits. A level is first tried as a whole. If it fits, bisection
/// finds the least number of inputs that must give way, to within 1/128 of the inputs.
struct saving_search {
  int saving = 0;                  // the saving of the try (save_memory.hpp)
  int low = 0, high = 0, all = 0;  // numbers of inputs that give way: too few, enough, all candidates
};

struct next_try {
  enum class way : std::uint8_t { none, on_cut_mesh, saving_more } is;
  bool was_best;         // this try is the best so far
  saving_search search;  // for the next try
};

/// Returns the next try after try `t`. `least`: the bytes of the best earlier plan. Both paths call this function. At
/// compile time each try is a type, and at run time a value.
///
///   an axis must be cut                                   the same on the mesh with that cut
///   more than a device may hold, and levels are left      the next level; a refused level is skipped, except level 0
///   all or some inputs of level 1, 2 or, with states, 3   bisection: fewer inputs if the plan fits, else more
///   otherwise                                             none
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
  else if (fits && level >= 1 && level <= (most_saving_of(nodes) == most_saving ? 3 : 2))  // without states, 3 equals 2
    s.high = s.all = static_cast<int>(cheapest_inputs(nodes, level, request.most_memory).size());
  if (s.high - s.low <= 1 + s.all / 128) return {none, is_best, s};
  const int half = inputs_between(nodes, level, request.most_memory, s.low, s.high);
  s.saving = level + 8 * half;
  return {half > 0 ? saving_more : none, is_best, s};
}

/// Returns the message for a program that fits at no level.
constexpr text too_large(std::int64_t least, std::int64_t most) {
  return text("a device holds ") << least
                                 << " bytes of inputs, outputs and intermediate values in the plan with the least memory; "
                                 << most << " are allowed: split more of the inputs, or use more devices";
}

}  // namespace gspmd::detail
