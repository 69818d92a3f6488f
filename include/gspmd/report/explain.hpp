// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gspmd/compile.hpp"
#include "gspmd/detail/report/explain_plan.hpp"

namespace gspmd {

using detail::explained_part;

/// Returns as text how a program was planned: for every operator its line, global and local shape and sharding, and under it the
/// communication it causes with the bytes that one device sends; which operators became one loop; what had to be gathered because an
/// operator cannot work on a split; then totals and memory. Nothing is run.
///
///     std::puts(explain<step>().c_str());
///
/// Of a part of it: the operators of some lines, a function say, or of a loop that begins there, with what they send and compute in all
/// trips; and `collectives_only` leaves out the operators for which nothing is sent.
///
///     std::puts(explain<step>({.file = "model.hpp", .first_line = 40, .last_line = 58, .collectives_only = true}).c_str());
template <class Step>
std::string explain(const explained_part& part = {}) {
  return detail::explain_plan(Step::view, Step::mesh_type::info, part);
}

}  // namespace gspmd
