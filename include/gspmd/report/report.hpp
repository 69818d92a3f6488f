// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gspmd/compile.hpp"
#include "gspmd/detail/report/cost_report.hpp"
#include "gspmd/detail/report/outline.hpp"
#include "gspmd/detail/report/plan_graph.hpp"
#include "gspmd/report/network.hpp"

/// Reports of a plan's cost on a network, as text, for programs that `explain` would fill many screens with. Each function takes a step
/// that was compiled, as a template argument, or a program that was compiled at run time. Without a network it is the one that counts where
/// none is named. With a `scope`, the end of a path of names that `named` gave, they tell of that part of the program only. Nothing is run.
/// All throw gspmd::error if the network says nothing of an axis of the mesh, or no scope is called so.
namespace gspmd {

/// The collectives that take longest, dearest first, at most `most` of them: seconds in one run of the program, what it is, over which
/// axes, the bytes that one device sends, how often, the operator and the line for whose sake. Equal ones (the layers of a network) are
/// one row with their number.
///
///     std::puts(dearest_collectives<step>(pod).c_str());
template <class Step>
std::string dearest_collectives(const network& net = default_network, std::size_t most = 10, std::string_view scope = {}) {
  return detail::cost_report(Step::view, Step::mesh_type::info, net, scope).dearest(most);
}
template <class Program>
std::string dearest_collectives(const Program& program, const network& net = default_network, std::size_t most = 10,
                                std::string_view scope = {}) {
  return detail::cost_report(program.view(), program.mesh_info(), net, scope).dearest(most);
}

/// A screen's worth of a program of any length, 40 lines at most: operators by kind with their flops, collectives by kind and axes with
/// bytes and seconds, scopes, of each those that cost most, and the totals: seconds of computing and of communication, and the bytes that
/// a device holds.
///
///     std::puts(summary<step>(pod).c_str());
template <class Step>
std::string summary(const network& net = default_network, std::string_view scope = {}) {
  return detail::cost_report(Step::view, Step::mesh_type::info, net, scope).summary();
}
template <class Program>
std::string summary(const Program& program, const network& net = default_network, std::string_view scope = {}) {
  return detail::cost_report(program.view(), program.mesh_info(), net, scope).summary();
}

/// The estimated step as a trace that chrome://tracing and ui.perfetto.dev draw (Trace Event Format, JSON): one track for computing and
/// one for the links along each mesh axis, an event per step of the plan with its operator, line and bytes. Nothing overlaps, as in
/// `estimate`, but what is started (overlapped.hpp, local::start, margins). What a loop repeats is one event as long as all its trips, and both bodies of a conditional are drawn.
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

/// The same as an SVG picture: a row for computing and one for each mesh axis, time to the right; pointing at a box names it.
template <class Step>
std::string timeline_svg(const network& net = default_network, std::string_view scope = {}) {
  return detail::cost_report(Step::view, Step::mesh_type::info, net, scope).timeline_svg();
}
template <class Program>
std::string timeline_svg(const Program& program, const network& net = default_network, std::string_view scope = {}) {
  return detail::cost_report(program.view(), program.mesh_info(), net, scope).timeline_svg();
}

/// The program as a list that stays short: what is computed between two collectives is one row with its operators, flops and seconds; a
/// collective is one with its axes, bytes and seconds; and rows that come again and again, the layers of a network, stand there once with
/// their number.
///
///     std::puts(outline<step>(pod).c_str());
template <class Step>
std::string outline(const network& net = default_network, std::string_view scope = {}) {
  return detail::outline(detail::cost_report(Step::view, Step::mesh_type::info, net, scope)).text();
}
template <class Program>
std::string outline(const Program& program, const network& net = default_network, std::string_view scope = {}) {
  return detail::outline(detail::cost_report(program.view(), program.mesh_info(), net, scope)).text();
}
/// The same as an SVG picture, with a bar for the part of the time that each row takes.
template <class Step>
std::string outline_svg(const network& net = default_network, std::string_view scope = {}) {
  return detail::outline(detail::cost_report(Step::view, Step::mesh_type::info, net, scope)).svg();
}
template <class Program>
std::string outline_svg(const Program& program, const network& net = default_network, std::string_view scope = {}) {
  return detail::outline(detail::cost_report(program.view(), program.mesh_info(), net, scope)).svg();
}

/// Returns the program of one device as a graph for Graphviz: a box for each step with its operators, collectives coloured by kind, and the
/// values between them with local shape and sharding.
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
/// The plan as JSON: values with shapes and shardings, inputs by name, steps in order with what they read and make and the bytes that
/// collectives send, and the totals of `explain`.
template <class Step>
std::string plan_json() {
  return detail::plan_graph(Step::view, Step::mesh_type::info).json();
}
template <class Program>
std::string plan_json(const Program& program) {
  return detail::plan_graph(program.view(), program.mesh_info()).json();
}

/// Two plans side by side: collectives by kind and axes with their number, bytes and seconds, and the totals of `summary`, what is equal in
/// both marked `=`; then the operators whose values lie otherwise or for which something else is sent, by name and line.
///
///     std::puts(compare<step_a, step_b>(pod).c_str());
template <class A, class B>
std::string compare(const network& net = default_network) {
  return detail::compare_costs(detail::cost_report(A::view, A::mesh_type::info, net),
                               detail::cost_report(B::view, B::mesh_type::info, net));
}
template <class A, class B>
std::string compare(const A& a, const B& b, const network& net = default_network) {
  return detail::compare_costs(detail::cost_report(a.view(), a.mesh_info(), net),
                               detail::cost_report(b.view(), b.mesh_info(), net));
}

}  // namespace gspmd
