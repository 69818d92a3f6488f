// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "gspmd/compile.hpp"
#include "gspmd/detail/report/html_page.hpp"
#include "gspmd/report/network.hpp"

namespace gspmd {

/// Returns a plan as one HTML page that needs nothing else: totals, the timeline, the dearest collectives, and the program folded by the
/// scopes that `named` gave, layers that are alike once with their number. Of each operator it says how its value is sharded, and when it
/// is pointed at its line, local shape and flops; of each collective the axes, the bytes that one device sends and the seconds, estimated on
/// the network. Takes a step that was compiled, as a template argument, or a program that was compiled at run time; with a `scope` it tells
/// of that part only. `dearest` is what stands there of the dearest collectives: dearest_collectives, or what_would_avoid if it is given.
/// Nothing is run. Throws gspmd::error as the other reports do (report.hpp).
///
///     std::ofstream("step.html") << report_html<step>(pod);
template <class Step>
std::string report_html(const network& net = default_network, std::string_view scope = {}, const std::string& dearest = {}) {
  return detail::html_page(Step::view, Step::mesh_type::info, net, scope, dearest);
}
template <class Program>
std::string report_html(const Program& program, const network& net = default_network, std::string_view scope = {},
                        const std::string& dearest = {}) {
  return detail::html_page(program.view(), program.mesh_info(), net, scope, dearest);
}

}  // namespace gspmd
