// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gspmd/detail/report/explain_plan.hpp"
#include "gspmd/run/compile.hpp"

namespace gspmd {

using detail::explained_part;

/// Returns the plan of a program as text.
///
/// The text has for every operator its line, its global and local shape, and its sharding. Below the operator are its
/// collectives, with the bytes that a device sends. It also lists fused loops, forced gathers, totals and memory.
///
/// `part` selects a part of the program: the operators of some lines, for example of a function, or of a loop that
/// begins there. Its totals then count all iterations. `collectives_only` omits the operators without communication.
///
/// **Communication.** None. The program does not run.
/// **Example.**
///
///     std::puts(explain<step>().c_str());
///     const explained_part part{.file = "model.hpp", .first_line = 40, .last_line = 58, .collectives_only = true};
///     std::puts(explain<step>(part).c_str());
template <class Step>
std::string explain(const explained_part& part = {}) {
  return detail::explain_plan(Step::view, Step::mesh_type::info, part);
}

}  // namespace gspmd
