// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "gspmd/detail/ops/own/kept_functions.hpp"
#include "gspmd/detail/support/fixed_string.hpp"
#include "gspmd/error.hpp"
#include "gspmd/ops/traced_body.hpp"

namespace gspmd {
namespace detail {

/// A named part of a program. Nodes that are added during its lifetime belong to the part.
class open_part {
 public:
  constexpr open_part(graph* g, const char* name) : graph_(g) {
    if (g == nullptr) return;
    before_ = g->open_scope;
    g->scopes.push_back({name, before_});
    g->open_scope = static_cast<int>(g->scopes.size()) - 1;
  }
  constexpr ~open_part() {
    if (graph_ != nullptr) graph_->open_scope = before_;
  }
  open_part(const open_part&) = delete;
  open_part& operator=(const open_part&) = delete;

 private:
  graph* graph_;
  int before_ = -1;
};

/// A path has `/` between its names. `[3]` after a name is the number of a call. So names contain neither.
constexpr bool may_be_name(std::string_view name) { return !name.empty() && name.find_first_of("/[]") == std::string_view::npos; }

}  // namespace detail

/// Returns f(arguments...) and puts every operator that the call adds into a part of this name. The gradients of these
/// operators belong to the same part, even if grad is called elsewhere. Nested names form a path: `layer/attention`.
/// Several calls with the same name are numbered: `layer[3]/attention` is in the fourth layer. `explain`, `summary`
/// and the other functions of report.hpp show one part by the end of its path. Outlines, pictures and timelines print
/// the names. The plan does not change: a name costs no computation and no communication.
///
/// **Errors.** At compile time: no arguments, an argument that is not a value or a group of values, an empty name, a
/// name with `/`, `[` or `]`.
/// **Example.**
///     auto y = named<"attention">(attention, x, w);
///     std::puts(explain<step>({.scope = "layer[3]/attention"}).c_str());
template <fixed_string Name, class F, class... Arguments>
constexpr auto named(F f, const Arguments&... arguments) {
  static_assert(detail::may_be_name(Name.view()), "gspmd: named: a name is not empty and has no `/`, `[` or `]`");
  static_assert(
      sizeof...(Arguments) > 0 && (detail::is_values<Arguments> && ...),
      "gspmd: named: the arguments of the function are values, or tuples or structs of values, and there is one at least; "
      "capture other arguments");
  const detail::open_part part(detail::graph_of(arguments...), Name.chars);
  return f(arguments...);
}
/// The same with a name that is known at run time, for programs that are built at run time. Throws gspmd::error if the
/// name is empty or contains `/`, `[` or `]`.
template <class F, class... Arguments>
auto named(const std::string& name, F f, const Arguments&... arguments) {
  static_assert(
      sizeof...(Arguments) > 0 && (detail::is_values<Arguments> && ...),
      "gspmd: named: the arguments of the function are values, or tuples or structs of values, and there is one at least; "
      "capture other arguments");
  if (!detail::may_be_name(name)) throw error("named: a name is not empty and has no `/`, `[` or `]`");
  detail::graph* const g = detail::graph_of(arguments...);
  const detail::open_part part(g != nullptr && g->functions != nullptr ? g : nullptr,
                               g != nullptr && g->functions != nullptr ? g->functions->keep(name)->c_str() : "");
  return f(arguments...);
}

}  // namespace gspmd
