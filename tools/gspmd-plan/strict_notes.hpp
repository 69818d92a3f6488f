// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic/strict_program.hpp>

#include "mesh.hpp"

/// The facts about a document's ops that the check stores for the build.
namespace plan_tool {

/// A transition in the form of a document.
struct written_transition {
  gspmd::transition_kind by = gspmd::transition_kind::convert;
  std::string axes;  // "x,y"
  gspmd::axis_state from, to;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs{};
};

struct op_note {
  written_transition transition{};
  std::optional<gspmd::dynamic::value_states> out{};  // the required states of the result
  std::string varies{};                               // the axes along which `out` makes a constant varying
  // For a loop or conditional: the axes along which devices may take different branches. For a manual region: the axes
  // that become local.
  std::string axes{};
  std::vector<gspmd::dynamic::value_states> takes{}, gives{};  // of a manual region
  std::string exchange{};                                      // the axes along which its shards may get elements of other shards
};

/// The key is the JSON of the op or, for an op with regions, its first region.
using op_notes = std::map<const json*, op_note>;

}  // namespace plan_tool
