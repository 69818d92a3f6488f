// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "gspmd/detail/ir/add_pass.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/ops/traced_body.hpp"
#include "gspmd/program/program.hpp"

/// The header for authors of passes. A pass changes or refuses a program after its trace and before its plan. Write one
/// struct that states every fact of `complete_program_pass`. A program carries the pass if it calls add_pass<P>, or if
/// it is with_pass<P>(f). No list changes. A missing fact is a compile error that names the fact.
/// docs/extending/pass.md adds two passes as examples.
namespace gspmd::extend {

// The facts (detail/ir/add_pass.hpp) and their values (detail/ir/program_pass.hpp).
using detail::add_pass;
using detail::complete_program_pass;
using detail::node_order;
using detail::pass_position;
using detail::plain_pass;

// A program: its nodes, the facts of their operators, and its mesh.
using detail::code_of;
using detail::facts_of;
using detail::graph;
using detail::name_of;
using detail::node;
using detail::opcode;
using detail::operand_of;

// Types, extents and shardings.
using detail::bounded_bytes;
using detail::bytes_of;
using detail::extents;
using detail::is_floating;
using detail::sharding;
using detail::vec;

// Refusals: g.fail(n.at, name_of(n.op), mistake::other, text("...") << number).
using detail::mistake;
using detail::shape_text;
using detail::text;

/// Adds a pass to the program of a value.
template <class P>
constexpr void add_pass(const value& x) {
  if (x.graph() != nullptr) detail::add_pass<P>(*x.graph());
}

template <class P, class F>
struct function_with_pass {
  F f;

  template <class... Arguments>
  constexpr auto operator()(const Arguments&... arguments) const {
    if (detail::graph* const g = detail::graph_of(arguments...); g != nullptr) detail::add_pass<P>(*g);
    return f(arguments...);
  }
};
/// Returns a program that carries the pass P: for `compile` and dynamic::compile. For a dynamic::builder write
/// add_pass<P>(b.graph()).
template <class P, class F>
constexpr auto with_pass(F f) {
  return function_with_pass<P, F>{std::move(f)};
}

}  // namespace gspmd::extend
