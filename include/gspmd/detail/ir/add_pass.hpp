// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/program_pass.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Adds passes to programs.
namespace gspmd::detail {

// clang-format off
/// The facts of a pass, one entry each:
///
///   name                 the name in lists of passes
///   position             see pass_position
///   reads_movements      the pass requires the movements of constants and broadcasts as they are written. If true,
///                        passes/rewrite/read_in_place.hpp leaves the movements of the program unchanged
///   applies(g)           returns true if the pass has work in this program
///   run(g)               changes the program, or refuses it by g.fail
///   run(g, shardings)    the same at pass_position::completed; `shardings` has the sharding of each node
template <class P>
concept complete_program_pass = requires(const graph& written, graph& g, const vec<sharding>& shardings) {
  requires std::same_as<decltype(P::name), const char* const>;
  requires std::same_as<decltype(P::position), const pass_position>;
  requires std::same_as<decltype(P::reads_movements), const bool>;
  { P::applies(written) } -> std::same_as<bool>;
  requires requires { { P::run(g) } -> std::same_as<node_order>; } || requires { { P::run(g, shardings) } -> std::same_as<node_order>; };
};
// clang-format on
template <class P>
inline constexpr bool has_run_of_position = [] {
  if constexpr (P::position != pass_position::completed) return requires(graph& g) { P::run(g); };
  else return requires(graph& g, const vec<sharding>& shardings) { P::run(g, shardings); };
}();
template <class P, bool IsComplete = complete_program_pass<P>>
struct checked_program_pass {
  static_assert(complete_program_pass<P>,
                "gspmd: a pass states every fact of complete_program_pass, in detail/ir/add_pass.hpp: the one named below "
                "is missing");
  static constexpr bool holds = false;
};
template <class P>
struct checked_program_pass<P, true> {
  static_assert(has_run_of_position<P>,
                "gspmd: `run` of a pass at pass_position::completed has the parameters (graph& g, const vec<sharding>& "
                "shardings); at any other position it has the parameter (graph& g)");
  static constexpr bool holds = has_run_of_position<P>;
};

/// `run` of a pass in a program that the compiler plans. Constants of the program keep its address, and GCC at -O0
/// emits unused constants. At run time no code calls it, so it contains no pass there.
template <class P, class... Shardings>
constexpr node_order run_while_compiling(graph& g, const Shardings&... shardings) {
  if (__builtin_is_constant_evaluated()) return P::run(g, shardings...);
  __builtin_trap();
}
/// `run` of a pass in a program that is planned at run time.
template <class P, class... Shardings>
node_order run_at_run_time(graph& g, const Shardings&... shardings) {
  return P::run(g, shardings...);
}

template <class P>
constexpr program_pass facts_of_pass(auto run) {
  program_pass facts{P::name, __PRETTY_FUNCTION__, P::position, P::reads_movements, P::applies, nullptr, nullptr};
  if constexpr (P::position == pass_position::completed) facts.run_completed = run;
  else facts.run = run;
  return facts;
}
/// The type of `run`.
template <class P>
using run_of_pass = std::conditional_t<P::position == pass_position::completed, node_order (*)(graph&, const vec<sharding>&),
                                       node_order (*)(graph&)>;
template <class P>
inline constexpr program_pass pass_while_compiling = facts_of_pass<P>(run_of_pass<P>(&run_while_compiling<P>));
/// Returns the same facts for a program that is planned at run time. Only this function contains the constant, so a
/// compiled program does not contain the code of the pass.
template <class P>
const program_pass* pass_at_run_time() {
  static constexpr program_pass facts = facts_of_pass<P>(run_of_pass<P>(&run_at_run_time<P>));
  return &facts;
}

template <class P, bool IsComplete>
constexpr void add_complete_pass(graph& g) {
  if constexpr (IsComplete) {
    const program_pass* const added = __builtin_is_constant_evaluated() ? &pass_while_compiling<P> : pass_at_run_time<P>();
    for (const program_pass* const pass : g.passes)
      if (pass->type == added->type) return;
    g.passes.push_back(added);
  }
}
/// Adds a pass to a program. Does nothing if the program carries the pass already.
template <class P>
constexpr void add_pass(graph& g) {
  add_complete_pass<P, checked_program_pass<P>::holds>(g);
}

}  // namespace gspmd::detail
