// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>
#include <string_view>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/plan/budget.hpp"

/// A plan as text: one row per operator with its communication below it, then the totals. It reads only the tables of a
/// plan, so static programs and programs planned at run time have the same format.
namespace gspmd::detail {

/// The part of a program that `explain` shows. The default is the whole program.
struct explained_part {
  std::string_view file = {};  // the last part of the path; empty: any
  int first_line = 0;          // operators on these lines, and in loops and conditionals that begin on these lines
  int last_line = std::numeric_limits<int>::max();
  std::string_view scope = {};    // operators of a scope, by the end of its path (see `named`)
  bool collectives_only = false;  // only operators that cause communication
  bool colours = false;           // colours the lines about communication; for a terminal

  [[nodiscard]] bool is_any() const { return has_lines() || !scope.empty(); }
  [[nodiscard]] bool has_lines() const { return !file.empty() || first_line > 0 || last_line < std::numeric_limits<int>::max(); }
  [[nodiscard]] bool holds(const location& at) const {
    return !at.is_input() && first_line <= at.line && at.line <= last_line && (file.empty() || file == graph::base_name(at.file));
  }
};

template <class = once>
[[gnu::cold]] std::string explain_plan(const plan_view& plan, const mesh_info& mesh, const explained_part& part);

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/report/explain_plan.ipp"
#endif
