// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gspmd/detail/report/cost_report.hpp"
#include "gspmd/detail/report/excess.hpp"
#include "gspmd/detail/report/numbers.hpp"
#include "gspmd/detail/report/outline.hpp"
#include "gspmd/detail/report/plan_graph.hpp"
#include "gspmd/report/network.hpp"
#include "gspmd/run/compile.hpp"

/// Reports of a plan's cost on a network, as text. Use them for programs that are too long for `explain`.
///
/// Each function takes a compiled step as a template argument, or a program that was compiled at run time. Without a
/// network argument, default_network is used. `scope` is the end of a path of names from `named`; the report then
/// covers only that part of the program. The program does not run. Bytes, flops and times are rounded (`44.1 MB`, `15.1
/// GFLOP`, `810 us`); number_form::exact prints every digit.
///
/// All functions throw gspmd::error if the network does not describe an axis of the mesh, or if no scope has this name.
namespace gspmd {

/// Returns a table of at most `most` collectives, the slowest first.
///
/// Each row has the seconds in one run, the collective with its axes, and the bytes that a device sends. It also has
/// the number of executions, and the operator and line that need the collective. Equal collectives, for example of the
/// layers of a network, are one row with their number.
///
/// **Example.**
///
///     std::puts(most_expensive_collectives<step>(pod).c_str());
template <class Step>
std::string most_expensive_collectives(const network& net = default_network, std::size_t most = 10, std::string_view scope = {},
                                       number_form form = number_form::rounded) {
  return detail::cost_report(Step::view, Step::mesh_type::info, net, scope, form).most_expensive(most);
}
template <class Program>
std::string most_expensive_collectives(const Program& program, const network& net = default_network, std::size_t most = 10,
                                       std::string_view scope = {}, number_form form = number_form::rounded) {
  return detail::cost_report(program.view(), program.mesh_info(), net, scope, form).most_expensive(most);
}

/// Returns a summary of at most 40 lines for a program of any length.
///
/// It lists the most expensive operators by kind with flops, collectives by kind and axes with bytes and seconds, and
/// scopes. It ends with totals: seconds of computation and of communication, and the bytes that a device holds.
///
/// **Example.**
///
///     std::puts(summary<step>(pod).c_str());
template <class Step>
std::string summary(const network& net = default_network, std::string_view scope = {}, number_form form = number_form::rounded) {
  return detail::cost_report(Step::view, Step::mesh_type::info, net, scope, form).summary();
}
template <class Program>
std::string summary(const Program& program, const network& net = default_network, std::string_view scope = {},
                    number_form form = number_form::rounded) {
  return detail::cost_report(program.view(), program.mesh_info(), net, scope, form).summary();
}

/// Returns a line for each collective that sends much more than the sizes of its operands make necessary. The lines
/// have the names or source lines of the values. `explain` prints the same lines.
template <class Program>
std::vector<std::string> excess_communication(const Program& program, number_form form = number_form::rounded) {
  const detail::plan_view& plan = program.view();
  return detail::excess_lines(
      plan,
      [&](int value, int) {
        return detail::cost_report::line_of(plan.nodes[static_cast<std::size_t>(plan.value(value).node)].at);
      },
      form);
}

/// Returns the estimated step as a trace for chrome://tracing and ui.perfetto.dev (Trace Event Format, JSON).
///
/// One track is the computation, and each mesh axis has a track for its links. Each step of the plan is an event with
/// its operator, line and bytes. Only started collectives overlap (plan/overlap.hpp, local::start, halo exchanges);
/// otherwise events follow each other, as in `estimate`. A step in a loop is one event with the duration of all
/// iterations. Both bodies of a conditional are drawn.
///
/// **Example.**
///
///     std::ofstream("step.json") << timeline<step>(pod);
template <class Step>
std::string timeline(const network& net = default_network, std::string_view scope = {}) {
  return detail::cost_report(Step::view, Step::mesh_type::info, net, scope).timeline();
}
template <class Program>
std::string timeline(const Program& program, const network& net = default_network, std::string_view scope = {}) {
  return detail::cost_report(program.view(), program.mesh_info(), net, scope).timeline();
}

/// Returns the timeline as an SVG picture: a row for the computation and a row for each mesh axis. Time runs to the
/// right; pointing at a box shows its name.
template <class Step>
std::string timeline_svg(const network& net = default_network, std::string_view scope = {},
                         number_form form = number_form::rounded) {
  return detail::cost_report(Step::view, Step::mesh_type::info, net, scope, form).timeline_svg();
}
template <class Program>
std::string timeline_svg(const Program& program, const network& net = default_network, std::string_view scope = {},
                         number_form form = number_form::rounded) {
  return detail::cost_report(program.view(), program.mesh_info(), net, scope, form).timeline_svg();
}

/// Returns the program as a short list.
///
/// All operators between two collectives are one row with flops and seconds. A collective is a row with axes, bytes and
/// seconds. Repeated rows, for example the layers of a network, appear once with their number.
///
/// **Example.**
///
///     std::puts(outline<step>(pod).c_str());
template <class Step>
std::string outline(const network& net = default_network, std::string_view scope = {}, number_form form = number_form::rounded) {
  return detail::outline(detail::cost_report(Step::view, Step::mesh_type::info, net, scope, form)).text();
}
template <class Program>
std::string outline(const Program& program, const network& net = default_network, std::string_view scope = {},
                    number_form form = number_form::rounded) {
  return detail::outline(detail::cost_report(program.view(), program.mesh_info(), net, scope, form)).text();
}
/// Returns the outline as an SVG picture, with a bar for the share of each row in the time.
template <class Step>
std::string outline_svg(const network& net = default_network, std::string_view scope = {},
                        number_form form = number_form::rounded) {
  return detail::outline(detail::cost_report(Step::view, Step::mesh_type::info, net, scope, form)).svg();
}
template <class Program>
std::string outline_svg(const Program& program, const network& net = default_network, std::string_view scope = {},
                        number_form form = number_form::rounded) {
  return detail::outline(detail::cost_report(program.view(), program.mesh_info(), net, scope, form)).svg();
}

/// Returns the program of one device as a graph for Graphviz. A box is a step with its operators; collectives are
/// coloured by kind. Edges are values with local shape and sharding.
///
/// **Example.**
///
///     std::ofstream("step.dot") << plan_dot<step>();
template <class Step>
std::string plan_dot() {
  return detail::plan_graph(Step::view, Step::mesh_type::info).dot();
}
template <class Program>
std::string plan_dot(const Program& program) {
  return detail::plan_graph(program.view(), program.mesh_info()).dot();
}
/// Returns the plan as JSON: values with shapes and shardings; inputs by name; steps in order with operands, results
/// and the bytes of collectives; and the totals of `explain`.
template <class Step>
std::string plan_json() {
  return detail::plan_graph(Step::view, Step::mesh_type::info).json();
}
template <class Program>
std::string plan_json(const Program& program) {
  return detail::plan_graph(program.view(), program.mesh_info()).json();
}

/// Returns a comparison of two plans.
///
/// It lists collectives by kind and axes with their number, bytes and seconds, and the totals of `summary`; `=` marks
/// equal numbers. Then it lists, by name and line, the operators whose results have different shardings or that need
/// different communication.
///
/// **Example.**
///
///     std::puts(compare<step_a, step_b>(pod).c_str());
template <class A, class B>
std::string compare(const network& net = default_network, number_form form = number_form::rounded) {
  return detail::compare_costs(detail::cost_report(A::view, A::mesh_type::info, net, {}, form),
                               detail::cost_report(B::view, B::mesh_type::info, net, {}, form));
}
template <class A, class B>
std::string compare(const A& a, const B& b, const network& net = default_network, number_form form = number_form::rounded) {
  return detail::compare_costs(detail::cost_report(a.view(), a.mesh_info(), net, {}, form),
                               detail::cost_report(b.view(), b.mesh_info(), net, {}, form));
}

}  // namespace gspmd
