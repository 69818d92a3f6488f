// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <tuple>
#include <utility>

#include "gspmd/detail/passes/choose/flops.hpp"
#include "gspmd/detail/passes/choose/whole_plans.hpp"
#include "gspmd/detail/passes/complete/complete.hpp"
#include "gspmd/detail/passes/complete/narrow.hpp"
#include "gspmd/detail/passes/list/program_to_plan.hpp"
#include "gspmd/detail/passes/lower/schedule.hpp"
#include "gspmd/detail/passes/order/overlap_moves.hpp"
#include "gspmd/detail/passes/order/overlap_started.hpp"
#include "gspmd/detail/passes/place/memory.hpp"
#include "gspmd/detail/passes/refuse/refusals.hpp"
#include "gspmd/detail/passes/rewrite/sub_axes.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/span.hpp"

/// The passes between a program and its plan, in order. The passes before them are in program_to_plan.hpp. Each pass is
/// a struct with a type `result`, which can be frozen as a constant, and these functions:
///
///   run(before)      returns the result, from the results of the passes before it: before.program(), before.mesh(),
///                    before.request(), before.template of<pass>(), and before.template take<pass>() for a result that
///                    no later pass uses. Completion records the origin of each split in before.origins().
///                    Before::chosen_by is the last pass that chose.
///   guess(before)    returns the lengths of the result's lists, from earlier lengths: before.template lengths<pass>().
///                    Absent if the result has no lists.
///   run(made...)     instead of run(before), in a pass that changes the result of the pass before it: see `then`
///
/// A pass is ordinary code without limits. pass_results (make_plan.hpp) makes each result at its first use.
/// static_passes (driver) freezes each result. A pass that may take more steps than compilers allow in one evaluation
/// has `begin` and `go_on`: go_on continues while its `effort` lasts. Work that needs this only in long programs
/// (Before::is_long()) is a pass that only long programs have: schedule_pass, memory_pass.
namespace gspmd::detail {

/// Lets another pass change the result of a pass, in the same evaluation. Tests can leave out the other pass.
template <class Pass, class Before, class... Made>
constexpr void then(const Before&, Made&... made) {
  if constexpr (!Before::off::template has<Pass>) Pass::run(made...);
}

struct layouts {
  vec<sharding> of;  // by node
  static constexpr auto lists(auto& s, auto f) { return f(s.of); }
};

/// Infers a sharding for every value (GSPMD 3.5).
struct complete_pass {
  using result = layouts;
  static constexpr layouts run(const auto& before) {
    return {complete_graph(before.program(), before.mesh(), before.request(), before.origins())};
  }
  static constexpr list_sizes<layouts> guess(const auto& before) { return {before.node_count()}; }
};

/// Finds the cut of an axis that a reshape needs. Planning then begins again, on a mesh with that cut (next_try.hpp).
struct cut_pass {
  using result = axis_cut;
  static constexpr axis_cut run(const auto& before) { return find_cut(before.program(), before.template of<complete_pass>().of); }
};

/// Finds the users of every value.
struct uses_pass {
  using result = value_uses;
  static constexpr value_uses run(const auto& before) { return uses_of(before.program()); }
  static constexpr list_sizes<value_uses> guess(const auto& before) {
    const auto nodes = before.node_count();
    return {nodes, nodes + 1, 2 * nodes + before.output_count(), nodes};
  }
};

/// Finds the preferred sharding of every value.
struct narrow_pass {
  using result = layouts;
  static constexpr layouts run(const auto& before) {
    const value_uses& uses = before.template of<uses_pass>();
    return {narrowed(before.program(), before.mesh(), uses, before.template of<complete_pass>().of)};
  }
  static constexpr list_sizes<layouts> guess(const auto& before) { return {before.node_count()}; }
};

/// The amount of work of one evaluation.
struct effort {
  int nodes = std::numeric_limits<int>::max();  // nodes to choose for: see chooser::run
  int prices = std::numeric_limits<int>::max();
  std::size_t ops = std::numeric_limits<std::size_t>::max();  // instructions to turn into steps
};
/// Chooses a plan for all values: the best plan of several rules (whole_plans.hpp).
struct choose_pass {
  using result = whole_plans;
  static constexpr whole_plans begin(const auto& before) {
    whole_plans state;
    state.best = choose_state(before.program());
    return state;
  }
  static constexpr void go_on(const auto& before, whole_plans& state, effort most) {
    const graph& g = before.program();
    const layouts& asked = before.template of<narrow_pass>();
    const layouts& completed = before.template of<complete_pass>();
    const value_uses& uses = before.template of<uses_pass>();
    plan_chooser(g, before.mesh(), before.request(), uses, completed.of, asked.of, state).run(most.nodes, most.prices);
  }
  /// Returns true if a state, or a frozen state, is complete.
  static constexpr bool is_complete(const auto& frozen) { return frozen.rest.is_complete; }
  /// Returns the lengths after one more evaluation, which examines `most` more nodes. `before_it`: the lengths after
  /// the previous evaluation.
  static constexpr list_sizes<whole_plans> guess(const auto& before, const list_sizes<whole_plans>& before_it, effort most) {
    auto sizes = before_it.template by_name<whole_plans::lengths>();
    choose_lengths &best = sizes.best, &trial = sizes.trial;
    const auto all = before.node_count(), left = all - best.table.nodes, nodes = static_cast<std::size_t>(most.nodes);
    if (left > 0) {
      const auto more = nodes < left ? nodes : left;
      const auto outputs = before.output_count();
      best.table.nodes += more;
      best.table.wanted += 2 * more + 8;
      best.table.paths += 2 * more + 32;
      best.table.steps += more + 32;
      best.table.outputs += outputs;
      best.book.values += 2 * more + 32;
      best.book.roots = best.book.first = best.book.last = all;
      best.book.open += 16;
      best.book.inside += more + 16;
      best.book.level_of_inside += more + 16;
      best.given += 16;
      best.marks += more + outputs + 8;
      if (more < left || before.largest_bytes() < (std::int64_t{1} << 16)) return list_sizes<whole_plans>::of_names(sizes);
    }
    if (left == 0 || all <= static_cast<std::size_t>(most_values_for_alternatives) || trial.table.nodes > 0) {
      share_room(best, trial, all);  // another plan may be under way, and may replace the best plan
      sizes.preferred = sizes.tried = all;
    }
    return list_sizes<whole_plans>::of_names(sizes);
  }
  /// Gives both plans the room that the longer plan needs, in a program of `all` nodes.
  static constexpr void share_room(choose_lengths& best, choose_lengths& trial, std::size_t all) {
    choose_state::lists(best, [&](auto&... of_best) {
      choose_state::lists(
          trial, [&](auto&... of_trial) { ((of_best = of_trial = (of_best > of_trial ? of_best : of_trial) + 8), ...); });
    });
    for (choose_lengths* const of : {&best, &trial}) of->table.nodes = of->book.roots = of->book.first = of->book.last = all;
  }
};
/// Searches for a better plan, if the mesh requests it (plan/search.hpp, which includes passes/list/search_pass.hpp).
struct search_pass;

/// Finds choices that the policies of the program forbid.
struct refuse_pass {
  using result = mistake;
  static constexpr mistake run(const auto& before) { return find(before).broken; }
  static constexpr text why(const auto& before) { return find(before).error; }

 private:
  template <class Before>
  static constexpr refusal find(const Before& before) {
    const graph& g = before.program();
    const auto& chosen = before.template of<typename Before::chosen_by>();
    return refusals(g, before.mesh(), before.request().saving, chosen.best.table).find(before.template of<uses_pass>());
  }
};

/// Joins small collectives into one message. Does nothing in an explicit program, which states its own messages.
struct join_pass {
  using result = local_program;
  static constexpr void run(const graph& g, const mesh_shape& mesh, int saving, local_program& p) {
    if (!g.is_explicit) collective_joiner(g, mesh, saving, p).run();
  }
};
/// Makes the program that every device runs.
struct emit_pass {
  using result = local_program;
  template <class Before>
  static constexpr local_program run(const Before& before) {
    const graph& g = before.program();
    const auto& chosen = before.template of<typename Before::chosen_by>();
    local_program p = emitter(g, before.mesh(), before.request().saving, chosen.best.table).run(before.template of<uses_pass>());
    then<join_pass>(before, g, before.mesh(), before.request().saving, p);
    return p;
  }
  template <class Before>
  static constexpr list_sizes<local_program> guess(const Before& before) {
    const auto values = before.template lengths<typename Before::chosen_by>().best.book.values;
    local_program::lengths sizes;
    sizes.values = values;
    sizes.ops = values + 16;
    sizes.inputs = before.input_count();
    sizes.outputs = before.output_count();
    sizes.results = before.node_count();
    return list_sizes<local_program>::of_names(sizes);
  }
};

struct steps_result {
  struct lengths {
    plan_lengths steps;
    std::size_t base = 0;
  };
  plan steps;     // without places in memory; or the reason for a refusal
  vec<int> base;  // by value: the value that it shares memory with

  static constexpr auto lists(auto& s, auto f) {
    return lists_of_plan(s.steps, [&](auto&... list) { return f(s.base, list...); });
  }
  struct rest_members {
    plan::rest_members steps;
  };
  static constexpr auto rest(auto& s, auto f) { return plan::rest(s.steps, f); }
};
/// Returns the lengths of the lists of steps. The guess is large enough for most programs, because equal steps share
/// their large tables. A guess that is too small costs a second evaluation.
constexpr steps_result::lengths lengths_of_steps(const auto& before) {
  const auto nodes = before.node_count();
  const auto local = before.template lengths<emit_pass>();
  const auto values = local.values + local.values / 4 + 8, ops = local.ops;
  steps_result::lengths sizes;
  sizes.base = values;
  plan_lengths& made = sizes.steps;
  made.nodes = made.completed = nodes;
  made.values = values;
  made.steps = made.inputs = made.outputs = made.shared_inputs = ops + 8;
  made.slots = 3 * ops + 16;
  made.bounds = ops + 16;
  made.scopes = before.scope_count();
  const auto movements = before.movements();
  boost::mp11::mp_for_each<kernel_tables>(
      [&]<class Table>(Table table) { table_of<typename Table::entry>(made) = table.guess(ops, movements); });
  return sizes;
}
/// The lines of the program with their costs on one device.
struct program_lines {
  vec<planned_node> of;

  static constexpr auto lists(auto& s, auto f) { return f(s.of); }
};
/// Lists the lines of the program. Only long programs have this pass.
struct lines_pass {
  using result = program_lines;
  static constexpr program_lines run(const auto& before) {
    return {list_nodes(before.program(), before.mesh(), before.template of<uses_pass>(), before.template of<emit_pass>())};
  }
  static constexpr list_sizes<program_lines> guess(const auto& before) { return {before.node_count()}; }
};

/// Makes the steps of the operators of a local program, except the steps after the last operator.
struct schedule_pass {
  using result = step_state;
  static constexpr step_state begin(const auto& before) {
    return step_state(before.program(), before.mesh(), before.request(), before.template take<emit_pass>());
  }
  static constexpr void go_on(const auto& before, step_state& state, effort most) {
    if (state.is_done_) return;
    const bool was_constant = state.graph_ == nullptr;  // then it lacks the members that `read` restores
    const graph& g = before.program();
    state.graph_ = &g;
    state.given_ = before.request().given;
    if (was_constant) state.read(before.template take<emit_pass>());
    scheduler(state).go_on(most.ops);
  }
  static constexpr bool is_complete(const auto& frozen) { return frozen.rest.is_done_; }
  /// Returns the same lengths for every part: those of the complete result.
  static constexpr list_sizes<step_state> guess(const auto& before, const list_sizes<step_state>&, effort) {
    const auto made = lengths_of_steps(before);
    const auto values = made.base, ops = before.template lengths<emit_pass>().ops;
    step_lengths sizes;
    sizes.out = made.steps;
    sizes.base = sizes.program_.values = sizes.maker_ = sizes.uses_ = sizes.waiting_ = sizes.readers_from_ = values;
    sizes.is_joined_ = sizes.step_ = sizes.offsets.first_ = sizes.offsets.by_value_ = values;
    sizes.readers_ = 3 * ops + 16;
    sizes.offsets.margins = sizes.offsets.reads_ = ops;
    sizes.contractions_ = sizes.reductions_ = sizes.open_bodies_ = sizes.tiles.tiles = sizes.tiles.reads_ = 16;
    return list_sizes<step_state>::of_names(sizes);
  }
};

/// Joins steps over the rows of the same values into one run. Does nothing on a checked mesh, where each value is
/// compared in memory.
struct row_blocks_pass {
  using result = step_state;
  static constexpr void run(step_state& state) {
    if (!state.out.is_checked) row_blocker(state).run();
  }
};
/// Makes the steps of the plan, without places in memory.
struct steps_pass {
  using result = steps_result;
  static constexpr steps_result run(const auto& before) {
    const graph& g = before.program();
    program_lines listed = lines_of(before);
    step_state state = scheduled(before, g);
    scheduler(state).finish();
    then<row_blocks_pass>(before, state);
    steps_result made{std::move(state.out), std::move(state.base)};
    made.steps.nodes = std::move(listed.of);
    made.steps.scopes = g.scopes;
    made.steps.completed = before.template of<complete_pass>().of;
    start_early(made.steps, span<const int>(made.base.data(), made.base.size()));
    return made;
  }
  static constexpr list_sizes<steps_result> guess(const auto& before) {
    return list_sizes<steps_result>::of_names(lengths_of_steps(before));
  }

 private:
  template <class Before>
  static constexpr program_lines lines_of(const Before& before) {
    if constexpr (Before::is_long()) return before.template take<lines_pass>();
    else return lines_pass::run(before);
  }
  template <class Before>
  static constexpr step_state scheduled(const Before& before, const graph& g) {
    if constexpr (Before::is_long()) {
      step_state state = before.template take<schedule_pass>();
      state.graph_ = &g;
      state.given_ = before.request().given;
      state.read(before.template take<emit_pass>());
      return state;
    } else {
      step_state state = schedule_pass::begin(before);
      schedule_pass::go_on(before, state, {});
      state.graph_ = &g;
      return state;
    }
  }
};

/// Another order of the steps that needs less memory.
struct step_order {
  vec<int> of;  // numbers of steps
  bool is_any = false;

  static constexpr auto lists(auto& s, auto f) { return f(s.of); }
  struct rest_members {
    bool is_any = false;
  };
  static constexpr auto rest(auto& s, auto f) { return f(s.is_any); }
};
/// Looks for an order of the steps that needs less memory. Keeps the order of programs with started collectives.
struct order_pass {
  using result = step_order;
  static constexpr step_order run(const auto& before) {
    const steps_result& made = before.template of<steps_pass>();
    step_order order;
    order.of.resize(made.steps.steps.size(), 0);
    if (has_started_steps(made.steps)) return order;
    order.is_any = step_orderer(plan_view(made.steps), span<const int>(made.base.data(), made.base.size())).run(order.of.data());
    return order;
  }
  static constexpr list_sizes<step_order> guess(const auto& before) {
    return {before.template lengths<steps_pass>().steps.steps};
  }
};

/// Places the plan in memory. If `Ordered`, the steps have the other order; the plan is empty if no other order exists.
/// Otherwise the steps have program order.
template <bool Ordered>
struct memory_pass {
  using result = plan;
  static constexpr plan run(const auto& before) {
    if constexpr (Ordered) {
      const step_order& order = before.template of<order_pass>();
      if (!order.is_any) return {};
      const steps_result& made = before.template of<steps_pass>();
      plan p = made.steps;
      put_in_order(p, span<const int>(order.of.data(), order.of.size()));
      hide(before, p, made.base);
      place_in_memory(p, made.base);
      return p;
    } else {
      steps_result made = before.template take<steps_pass>();
      hide(before, made.steps, made.base);
      place_in_memory(made.steps, std::move(made.base));
      return std::move(made.steps);
    }
  }
  static constexpr list_sizes<plan> guess(const auto& before) {
    plan_lengths sizes = before.template lengths<steps_pass>().steps;
    sizes.shared_inputs = before.output_count();
    return list_sizes<plan>::of_names(sizes);
  }

 private:
  static constexpr void hide(const auto& before, plan& p, const vec<int>& base) {
    const plan_request& asked = before.request();
    if (asked.hide != nullptr) asked.hide(p, span<const int>(base.data(), base.size()), asked.network);
  }
};

/// Starts movements before steps that do not need them, and finishes them after these steps.
struct overlap_pass {
  using result = plan;
  static constexpr void run(plan& p) {
    overlap_moves(p);
    overlap_started(p);
  }
};
/// Makes the plan of memory_pass, with overlapped movements and its traffic.
template <bool Ordered>
struct place_pass {
  using result = plan;
  template <class Before>
  static constexpr plan run(const Before& before) {
    plan p = [&] {
      if constexpr (Before::is_long()) return before.template take<memory_pass<Ordered>>();
      else return memory_pass<Ordered>::run(before);
    }();
    if (p.steps.empty()) return p;
    then<overlap_pass>(before, p);
    note_traffic(p);
    return p;
  }
  static constexpr list_sizes<plan> guess(const auto& before) { return memory_pass<Ordered>::guess(before); }
};

using passes =
    boost::mp11::mp_list<complete_pass, cut_pass, uses_pass, narrow_pass, choose_pass, search_pass, refuse_pass, emit_pass,
                         join_pass, steps_pass, row_blocks_pass, order_pass, place_pass<true>, place_pass<false>, overlap_pass>;

}  // namespace gspmd::detail
