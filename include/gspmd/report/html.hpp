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
/// The page has the totals, the most expensive collectives, the timeline, the program folded by the scopes of `named`,
/// and the inputs by the scope that reads them. Equal layers appear once: `layers 1-3`. A row shows the value or the
/// line, the sharding, the estimated seconds and the bytes that a device sends. Pointing at a row shows its local shape
/// and flops. A search box selects rows; it is the only script of the page.
///
/// Pass a compiled step as a template argument, or a program that was compiled at run time. With a `scope` the page
/// shows only that part. `most_expensive` is the text about the most expensive collectives: by default
/// most_expensive_collectives, or pass the text of suggest_annotations. `title` is the title of the page. The program
/// does not run.
///
/// **Errors.** gspmd::error as for the other reports (report.hpp).
/// **Example.**
///
///     std::ofstream("step.html") << report_html<step>(pod);
template <class Step>
std::string report_html(const network& net = default_network, std::string_view scope = {}, const std::string& most_expensive = {},
                        std::string_view title = {}, number_form form = number_form::rounded) {
  return detail::html_page(Step::view, Step::mesh_type::info, net, scope, most_expensive, title, form);
}
template <class Program>
std::string report_html(const Program& program, const network& net = default_network, std::string_view scope = {},
                        const std::string& most_expensive = {}, std::string_view title = {},
                        number_form form = number_form::rounded) {
  return detail::html_page(program.view(), program.mesh_info(), net, scope, most_expensive, title, form);
}

}  // namespace gspmd
