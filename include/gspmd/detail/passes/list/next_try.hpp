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

struct next_try {
  enum class way : std::uint8_t { none, on_cut_mesh, saving_more } is;
  bool was_best;  // the one that was looked at, of those so far
};

/// Returns what comes after a try, with its level of saving; `least`: what the best one of those before it holds. Both paths read
/// this: the compiler goes from type to type, the run time from value to value.
///
///   an axis to cut                                        the same on the mesh with that cut
///   more than a device may hold, and not all is saved     the next level; a refused one is passed over, but for the first
///   else                                                  nothing
constexpr next_try after(const planned_try& t, const plan_request& request, std::int64_t least) {
  if (t.cut.axis >= 0) return {next_try::way::on_cut_mesh, false};
  const bool is_first = request.saving == 0;
  if (request.most_memory <= 0 || (is_first && t.is_refused)) return {next_try::way::none, true};
  const bool is_best = is_first || (!t.is_refused && t.holds < least);
  const bool is_too_large = (is_best ? t.holds : least) > request.most_memory;
  return {is_too_large && request.saving < most_saving ? next_try::way::saving_more : next_try::way::none, is_best};
}

/// Why no plan fits.
constexpr text too_large(std::int64_t least, std::int64_t most) {
  return text("a device holds ") << least << " bytes, inputs, outputs and what is between them, in the plan that holds least; "
                                 << most << " are allowed: split more of the inputs, or use more devices";
}

}  // namespace gspmd::detail
