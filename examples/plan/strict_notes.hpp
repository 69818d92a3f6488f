// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic/strict_program.hpp>

#include "mesh.hpp"

/// The notes that checking takes of a document's ops, for building them.
namespace plan_tool {

/// A transition as a document writes it.
struct written_transition {
  gspmd::transition_kind by = gspmd::transition_kind::convert;
  std::string axes;  // "x,y"
  gspmd::axis_state from, to;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs{};
};

struct op_note {
  written_transition transition{};
  std::optional<gspmd::dynamic::value_states> out{};  // what the result must be
  std::string varies{};                               // the axes on which `out` says of a constant that it varies
  // Of a loop or a conditional, the axes along which devices may go different ways; of a manual region, those that become local.
  std::string axes{};
  std::vector<gspmd::dynamic::value_states> takes{}, gives{};  // of a manual region
  std::string exchange{};                                      // the axes along which its parts may get what others hold
};

/// By what says it in the document: the op, or of an op with regions the first of them.
using op_notes = std::map<const json*, op_note>;

}  // namespace plan_tool
