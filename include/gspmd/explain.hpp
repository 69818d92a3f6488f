// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gspmd/compile.hpp"
#include "gspmd/detail/report/explain_plan.hpp"

namespace gspmd {

/// What was decided for a compiled program, as text: for every operator its line, global and local shape and sharding, and
/// under it the communication it causes with the bytes that one device sends; which operators became one loop; what had to
/// be gathered because an operator cannot work on a split; then totals and memory. Nothing is run.
///
///     std::puts(explain<step>().c_str());
template <class Step>
std::string explain() {
  return detail::explain_plan(Step::view, Step::mesh_type::info);
}

}  // namespace gspmd
