// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "gspmd/detail/passes/ghost/ghost_zones.hpp"
#include "gspmd/detail/passes/refuse/try_operators.hpp"
#include "gspmd/detail/passes/rewrite/compose_movements.hpp"
#include "gspmd/detail/passes/rewrite/defer_reshards.hpp"
#include "gspmd/detail/passes/rewrite/read_in_place.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/planning_work.hpp"

/// The passes from a program as written to the program that is planned, in order. Each pass is a struct with these
/// functions:
///
///   applies(g)         returns true if the pass has work in this program
///   run(g)             changes the program or refuses it; returns true if the nodes are no longer in order
///                      (canonical.hpp)
///   run(g, layouts)    the same, for a pass that needs the layouts of completion
///
/// Programs of all modes pass through the same list. They differ in the passes that apply.
namespace gspmd::detail {

/// Passes that a test leaves out.
template <class... Pass>
struct without {
  template <class P>
  static constexpr bool has = (std::is_same_v<P, Pass> || ...);
};

struct of_planned_programs {
  static constexpr bool applies(const graph& g) { return g.find_types == nullptr; }
};

/// Finds a mistake in the types of a program, while its operators are as they were written.
struct check_types_pass {
  static constexpr bool applies(const graph& g) { return g.find_types != nullptr || g.type_local != nullptr; }
  static constexpr void run(graph& g) { (g.find_types != nullptr ? g.find_types : g.type_local)(g, false); }
};
/// Numbers the nodes by their meaning and removes nodes that no output needs (canonical.hpp).
struct canonical_pass {
  static constexpr bool applies(const graph&) { return true; }
  static constexpr void run(graph& g) { g = canonical_order(g); }
};
/// Composes movements that follow each other into one, in programs that write their exchanges. Runs before the types
/// assign the exchanges.
struct compose_written_pass {
  static constexpr bool applies(const graph& g) { return g.find_types != nullptr; }
  static constexpr bool run(graph& g) { return compose_movements(g); }
};
/// Turns the types of an explicit program without manual regions into annotations.
struct types_pass {
  static constexpr bool applies(const graph& g) { return g.find_types != nullptr && g.type_local == nullptr; }
  static constexpr void run(graph& g) { g.find_types(g, true); }
};
/// Turns manual regions into a program that can be planned, and the types around them into annotations.
struct regions_pass {
  static constexpr bool applies(const graph& g) { return g.type_local != nullptr; }
  static constexpr bool run(graph& g) { return g.type_local(g, true), true; }
};
/// Plans the loops that request ghost zones in rounds of several sweeps.
struct ghost_zones_pass {
  static constexpr bool applies(const graph& g) { return g.find_types == nullptr && asks_for_ghost_zones(g); }
  static constexpr bool run(graph& g, const vec<sharding>& layouts) { return g = with_ghost_zones(g, layouts), true; }
};
/// Turns movements of constants, iotas and broadcasts into new constants, iotas and broadcasts.
struct read_in_place_pass {
  static constexpr bool applies(const graph& g) {
    return g.find_types == nullptr && g.type_local == nullptr && g.align_fields == nullptr;
  }
  static constexpr bool run(graph& g) { return in_place_reader(g).run(); }
};
/// Composes movements that follow each other into one.
struct compose_pass : of_planned_programs {
  static constexpr bool run(graph& g) { return compose_movements(g); }
};
/// Marks the reshards that cost less after their users (defer_reshards.hpp).
struct defer_pass : of_planned_programs {
  static constexpr void run(graph& g) { defer_reshards(g); }
};
/// Gives staggered fields one extent.
struct align_fields_pass {
  static constexpr bool applies(const graph& g) { return g.align_fields != nullptr; }
  static constexpr bool run(graph& g) { return g.align_fields(g, true), true; }
};
/// Turns ordered barriers into plain barriers, because the order of the nodes is settled here.
struct settle_barriers_pass {
  static constexpr bool applies(const graph& g) { return g.settle_barriers != nullptr; }
  static constexpr void run(graph& g) { g.settle_barriers(g, true); }
};
/// Gives next values the sharding of their inputs. A constant program does this in an evaluation of its own
/// (driver/carried_program.hpp).
struct place_carried_pass {
  static constexpr bool applies(const graph& g) { return !__builtin_is_constant_evaluated() && g.place_carried != nullptr; }
  static constexpr bool run(graph& g, const vec<sharding>& layouts) { return g.place_carried(g, layouts), false; }
};

using program_passes =
    boost::mp11::mp_list<check_types_pass, canonical_pass, read_in_place_pass, compose_written_pass, types_pass, regions_pass,
                         ghost_zones_pass, compose_pass, align_fields_pass, defer_pass, settle_barriers_pass, place_carried_pass>;

/// Returns the program that is planned: the nodes that its outputs need, in order, or a program with its mistake.
/// `Passes`: a part of the list. `seen(Pass(), g)` is called after each pass that applies.
template <class Passes = program_passes, class Off = without<>, class Seen = std::nullptr_t>
constexpr graph program_to_plan(graph g, Seen seen = nullptr) {
  if (!g.failed()) try_operators(g);
  boost::mp11::mp_for_each<Passes>([&]<class Pass>(Pass pass) {
    if (Off::template has<Pass> || g.failed() || !Pass::applies(g)) return;
    count_planning(static_cast<std::int64_t>(g.nodes.size()));
    bool is_unordered = false;
    if constexpr (requires { Pass::run(g, vec<sharding>()); })
      is_unordered = Pass::run(g, complete_graph(g, g.mesh->shape, g.mesh->request));
    else if constexpr (std::is_void_v<decltype(Pass::run(g))>) Pass::run(g);
    else is_unordered = Pass::run(g);
    if (is_unordered && !g.failed()) g = canonical_order(g);
    if constexpr (!std::is_null_pointer_v<Seen>) seen(pass, g);
  });
  return g;
}

}  // namespace gspmd::detail
