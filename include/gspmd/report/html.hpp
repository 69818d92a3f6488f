// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "gspmd/detail/report/html_page.hpp"
#include "gspmd/report/network.hpp"
#include "gspmd/run/compile.hpp"

namespace gspmd {

/// Returns a plan as a single self-contained HTML page.
///
/// The page has totals, the timeline, the most expensive collectives, and the program, folded by the scopes of `named`.
/// Equal layers appear once, with their number. An operator shows its sharding; pointing at it shows its line, local
/// shape and flops. A collective shows its axes, the bytes that a device sends, and the estimated seconds on the
/// network.
///
/// Pass a compiled step as a template argument, or a program that was compiled at run time. With a `scope` the page
/// shows only that part. `most_expensive` is the text about the most expensive collectives: by default
/// most_expensive_collectives, or pass the text of suggest_annotations. The program does not run.
///
/// **Errors.** gspmd::error as for the other reports (report.hpp).
/// **Example.**
///
///     std::ofstream("step.html") << report_html<step>(pod);
template <class Step>
std::string report_html(const network& net = default_network, std::string_view scope = {},
                        const std::string& most_expensive = {}) {
  return detail::html_page(Step::view, Step::mesh_type::info, net, scope, most_expensive);
}
template <class Program>
std::string report_html(const Program& program, const network& net = default_network, std::string_view scope = {},
                        const std::string& most_expensive = {}) {
  return detail::html_page(program.view(), program.mesh_info(), net, scope, most_expensive);
}

}  // namespace gspmd
