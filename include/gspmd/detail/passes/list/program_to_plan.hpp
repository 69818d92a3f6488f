// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/program_pass.hpp"
#include "gspmd/detail/passes/complete/complete.hpp"
#include "gspmd/detail/passes/refuse/try_operators.hpp"
#include "gspmd/detail/passes/rewrite/compose_movements.hpp"
#include "gspmd/detail/passes/rewrite/defer_reshards.hpp"
#include "gspmd/detail/passes/rewrite/read_in_place.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/planning_work.hpp"

/// The passes from a program as written to the program that is planned: a list of the library, and the passes that the
/// program carries (ir/program_pass.hpp). Programs of all modes pass through the same list. They differ in the passes
/// that apply.
namespace gspmd::detail {

/// Passes that a test leaves out.
template <class... Pass>
struct without {
  template <class P>
  static constexpr bool has = (std::is_same_v<P, Pass> || ...);
};

struct of_planned_programs : plain_pass {
  static constexpr bool applies(const graph& g) { return !g.is_explicit; }
};

/// Returns `changed` if a pass made a change.
constexpr node_order order_after(bool is_changed) { return is_changed ? node_order::changed : node_order::kept; }

/// Numbers the nodes by their meaning and removes nodes that no output needs (canonical.hpp).
struct canonical_pass : plain_pass {
  static constexpr const char* name = "canonical";
  static constexpr pass_position position = pass_position::in_order;
  static constexpr bool applies(const graph&) { return true; }
  static constexpr node_order run(graph& g) { return g = canonical_order(g), node_order::kept; }
};
/// Turns movements of constants, iotas and broadcasts into new constants, iotas and broadcasts.
struct read_in_place_pass : plain_pass {
  static constexpr const char* name = "read in place";
  static constexpr pass_position position = pass_position::in_order;
  static constexpr bool applies(const graph& g) {
    for (const program_pass* const pass : g.passes)
      if (pass->reads_movements) return false;
    return !g.states_communication();
  }
  static constexpr node_order run(graph& g) { return order_after(in_place_reader(g).run()); }
};
/// Composes movements that follow each other into one, in programs that write their exchanges. Runs before the types
/// assign the exchanges.
struct compose_written_pass : plain_pass {
  static constexpr const char* name = "compose written";
  static constexpr pass_position position = pass_position::in_order;
  static constexpr bool applies(const graph& g) { return g.is_explicit; }
  static constexpr node_order run(graph& g) { return order_after(compose_movements(g)); }
};
/// Composes movements that follow each other into one.
struct compose_pass : of_planned_programs {
  static constexpr const char* name = "compose";
  static constexpr pass_position position = pass_position::composed;
  static constexpr node_order run(graph& g) { return order_after(compose_movements(g)); }
};
/// Marks the reshards that cost less after their users (defer_reshards.hpp).
struct defer_pass : of_planned_programs {
  static constexpr const char* name = "defer";
  static constexpr pass_position position = pass_position::settled;
  static constexpr node_order run(graph& g) { return defer_reshards(g), node_order::kept; }
};

using program_passes = boost::mp11::mp_list<canonical_pass, read_in_place_pass, compose_written_pass, compose_pass, defer_pass>;

/// The positions whose passes run.
struct pass_positions {
  pass_position first = pass_position::as_written, last = pass_position::completed;
};
inline constexpr pass_positions checks_as_written{pass_position::as_written, pass_position::as_written};
inline constexpr pass_positions after_checks{pass_position::in_order, pass_position::completed};

/// Calls f(name, applies, run) for each pass of the library and of the program, in order. `applies` and `run` are
/// functions of a graph. A compiled program runs the passes at `completed` as separate evaluations
/// (driver/static_plan.hpp), so the list omits them in a constant evaluation.
template <class Off = without<>>
constexpr void for_each_pass(const vec<const program_pass*>& carried, pass_positions at, auto f) {
  for (int now = static_cast<int>(at.first); now <= static_cast<int>(at.last); ++now) {
    const auto position = static_cast<pass_position>(now);
    boost::mp11::mp_for_each<program_passes>([&]<class Pass>(Pass) {
      if (!Off::template has<Pass> && Pass::position == position) f(Pass::name, Pass::applies, Pass::run);
    });
    if (position == pass_position::completed && __builtin_is_constant_evaluated()) continue;
    for (const program_pass* const pass : carried)
      if (pass->position == position)
        f(pass->name, pass->applies, [pass](graph& g) {
          if (pass->position != pass_position::completed) return pass->run(g);
          return pass->run_completed(g, complete_graph(g, g.mesh->shape, g.mesh->request));
        });
  }
}

/// Returns the program that is planned: the nodes that its outputs need, in order, or a program with its mistake.
/// `seen(name, g)` is called after each pass that applies.
template <pass_positions At = pass_positions{}, class Off = without<>, class Seen = std::nullptr_t>
constexpr graph program_to_plan(graph g, Seen seen = nullptr) {
  if (!g.failed()) try_operators(g);
  const vec<const program_pass*> carried = g.passes;  // a pass may replace the graph
  for_each_pass<Off>(carried, At, [&](const char* name, auto applies, auto run) {
    if (g.failed() || !applies(g)) return;
    count_planning(static_cast<std::int64_t>(g.nodes.size()));
    if (run(g) == node_order::changed && !g.failed()) g = canonical_order(g);
    if constexpr (!std::is_null_pointer_v<Seen>) seen(name, g);
  });
  return g;
}

}  // namespace gspmd::detail
