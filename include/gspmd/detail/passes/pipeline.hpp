// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <tuple>
#include <utility>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/detail/passes/choose/whole_plans.hpp"
#include "gspmd/detail/passes/order/overlap_moves.hpp"
#include "gspmd/detail/passes/order/overlap_started.hpp"
#include "gspmd/detail/passes/plan_passes.hpp"
#include "gspmd/detail/support/span.hpp"

/// The passes, in their order: what stands between a graph and a plan. Each is a struct with its result, which can be frozen, and
///
///   run(before)            makes it from what the passes before it made: before.program(), before.mesh(), before.template of<pass>(),
///                          before.template take<pass>(), which no later pass asks for; Before::chosen_by is the pass that chose last
///   guess(before)          how long its lists will be, from the lengths before: before.template lengths<pass>()
///
/// and is ordinary code without limits: pass_results (make_plan.hpp) folds over the list, static_passes (driver) freezes each result. A
/// pass that may take more steps than compilers allow one evaluation begins, and goes on as long as its `effort` lasts. What long programs
/// alone need that for (Before::is_long()) is a pass of its own, which no other program has: schedule_pass, memory_pass.
namespace gspmd::detail {

struct layouts {
  vec<sharding> of;  // by node
  [[nodiscard]] constexpr span<const sharding> all() const { return {of.data(), of.size()}; }
  template <class S, class F>
  static constexpr auto lists(S& s, F f) {
    return f(s.of);
  }
  template <class S, class F>
  static constexpr auto rest(S&, F f) {
    return f();
  }
};

/// A sharding for every value (GSPMD 3.5).
struct complete_pass {
  using result = layouts;
  template <class Before>
  static constexpr layouts run(const Before& before) {
    return {complete_graph(before.program(), before.mesh())};
  }
  template <class Before>
  static constexpr list_sizes<layouts> guess(const Before& before) {
    return {before.node_count()};
  }
};

/// The pass that finds the sharding that is asked for of every value.
struct narrow_pass {
  using result = layouts;
  template <class Before>
  static constexpr layouts run(const Before& before) {
    const graph& g = before.program();
    const layouts& completed = before.template of<complete_pass>();
    return {asked_for(g, before.mesh(), completed.all())};
  }
  template <class Before>
  static constexpr list_sizes<layouts> guess(const Before& before) {
    return {before.node_count()};
  }
};

/// How much one evaluation does.
struct effort {
  int nodes = std::numeric_limits<int>::max();  // chosen: see chooser::run
  int prices = std::numeric_limits<int>::max();
  std::size_t ops = std::numeric_limits<std::size_t>::max();  // made to steps
};
/// A plan for all values: the best of those of several rules.
struct choose_pass {
  using result = whole_plans;
  template <class Before>
  static constexpr whole_plans begin(const Before& before) {
    whole_plans state;
    state.best = choose_state(before.program());
    return state;
  }
  template <class Before>
  static constexpr void go_on(const Before& before, whole_plans& state, effort most) {
    const graph& g = before.program();
    const layouts& asked = before.template of<narrow_pass>();
    const layouts& completed = before.template of<complete_pass>();
    const value_uses uses = uses_of(g);
    plan_chooser(g, before.mesh(), uses, completed.all(), asked.all(), state).run(most.nodes, most.prices);
  }
  /// Whether a state is complete, as a constant too.
  static constexpr bool is_complete(const auto& frozen) { return item<0>(frozen.rest); }
  /// After an evaluation that left lists as long as `before_it`, and one more, which looks at `most` more.
  template <class Before>
  static constexpr list_sizes<whole_plans> guess(const Before& before, const list_sizes<whole_plans>& before_it, effort most) {
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
    if (all <= static_cast<std::size_t>(most_values_for_alternatives) || trial.table.nodes > 0) {
      share_room(best, trial, all);  // another plan may be under way, and take the place of the best one
      sizes.preferred = sizes.tried = all;
    }
    return list_sizes<whole_plans>::of_names(sizes);
  }
  /// Makes room for both plans where the longer one has it, for programs of `all` nodes.
  static constexpr void share_room(choose_lengths& best, choose_lengths& trial, std::size_t all) {
    choose_state::lists(best, [&](auto&... of_best) {
      choose_state::lists(
          trial, [&](auto&... of_trial) { ((of_best = of_trial = (of_best > of_trial ? of_best : of_trial) + 8), ...); });
    });
    for (choose_lengths* const of : {&best, &trial}) of->table.nodes = of->book.roots = of->book.first = of->book.last = all;
  }
};
/// The pass that searches for a better plan, of meshes that ask for it (searched.hpp, which includes passes/search_pass.hpp).
struct search_pass;

struct emit_pass {
  using result = local_program;
  template <class Before>
  static constexpr local_program run(const Before& before) {
    const graph& g = before.program();
    return emit_program(g, before.mesh(), uses_of(g), before.template of<typename Before::chosen_by>().best.table);
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
  plan steps;     // that lie nowhere yet; or why the program is refused
  vec<int> base;  // by value, the one whose memory it shares

  template <class S, class F>
  static constexpr auto lists(S& s, F f) {
    return lists_of_plan(s.steps, [&](auto&... list) { return f(s.base, list...); });
  }
  template <class S, class F>
  static constexpr auto rest(S& s, F f) {
    return plan::rest(s.steps, f);
  }
};
/// The steps of the operators of a local program, but for those that come behind the last of them.
struct schedule_pass {
  using result = step_state;
  template <class Before>
  static constexpr step_state begin(const Before& before) {
    const graph& g = before.program();
    step_state refused;
    refuse_communication(g, before.template of<emit_pass>(), refused.out);
    refused.is_done_ = refused.out.broken != mistake::none;
    if (refused.is_done_) return refused;
    return step_state(g, before.mesh(), before.template take<emit_pass>());
  }
  template <class Before>
  static constexpr void go_on(const Before& before, step_state& state, effort most) {
    if (state.is_done_) return;
    const bool was_constant = state.graph_ == nullptr;  // then it lacks what `read` gives back
    const graph& g = before.program();
    state.graph_ = &g;
    if (was_constant) state.read(before.template take<emit_pass>());
    scheduler(state).go_on(most.ops);
  }
  static constexpr bool is_complete(const auto& frozen) { return item<4>(frozen.rest); }
  /// The same for every part: all that the last of them has.
  template <class Before>
  static constexpr list_sizes<step_state> guess(const Before& before, const list_sizes<step_state>&, effort);
};

struct steps_pass {
  using result = steps_result;
  template <class Before>
  static constexpr steps_result run(const Before& before) {
    const graph& g = before.program();
    auto nodes = list_nodes(g, before.mesh(), before.template of<emit_pass>());
    step_state state = scheduled(before, g);
    if (state.out.broken == mistake::none) scheduler(state).finish();
    steps_result made{std::move(state.out), std::move(state.base)};
    made.steps.nodes = std::move(nodes);
    made.steps.scopes = g.scopes;
    const layouts& completed = before.template of<complete_pass>();
    made.steps.completed = completed.of;
    start_early(made.steps, span<const int>(made.base.data(), made.base.size()));
    return made;
  }
  /// A guess that holds for most programs: equal steps share what is large. One that does not costs a second evaluation.
  template <class Before>
  static constexpr list_sizes<steps_result> guess(const Before& before) {
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
    return list_sizes<steps_result>::of_names(sizes);
  }

 private:
  template <class Before>
  static constexpr step_state scheduled(const Before& before, const graph& g) {
    if constexpr (Before::is_long()) {
      step_state state = before.template take<schedule_pass>();
      state.graph_ = &g;
      if (state.out.broken == mistake::none) state.read(before.template take<emit_pass>());
      return state;
    } else {
      step_state state = schedule_pass::begin(before);
      schedule_pass::go_on(before, state, {});
      state.graph_ = &g;
      return state;
    }
  }
};

template <class Before>
constexpr list_sizes<step_state> schedule_pass::guess(const Before& before, const list_sizes<step_state>&, effort) {
  const auto made = steps_pass::guess(before).template by_name<steps_result::lengths>();
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

/// Another order of the steps that needs less memory.
struct step_order {
  vec<int> of;  // numbers of steps
  bool is_any = false;

  template <class S, class F>
  static constexpr auto lists(S& s, F f) {
    return f(s.of);
  }
  template <class S, class F>
  static constexpr auto rest(S& s, F f) {
    return f(s.is_any);
  }
};
struct order_pass {
  using result = step_order;
  template <class Before>
  static constexpr step_order run(const Before& before) {
    const steps_result& made = before.template of<steps_pass>();
    step_order order;
    order.of.resize(made.steps.steps.size(), 0);
    if (has_started_steps(made.steps)) return order;
    order.is_any = step_orderer(plan_view(made.steps), span<const int>(made.base.data(), made.base.size())).run(order.of.data());
    return order;
  }
  template <class Before>
  static constexpr list_sizes<step_order> guess(const Before& before) {
    return {before.template lengths<steps_pass>().steps.steps};
  }
};

/// The plan, placed in memory, with the steps in the other order; of no program if there is none. Or as the program has them.
template <bool Ordered>
struct memory_pass {
  using result = plan;
  template <class Before>
  static constexpr plan run(const Before& before) {
    if constexpr (Ordered) {
      const step_order& order = before.template of<order_pass>();
      if (!order.is_any) return {};
      const steps_result& made = before.template of<steps_pass>();
      plan p = made.steps;
      put_in_order(p, span<const int>(order.of.data(), order.of.size()));
      place_in_memory(p, made.base);
      return p;
    } else {
      steps_result made = before.template take<steps_pass>();
      if (made.steps.broken == mistake::none) place_in_memory(made.steps, std::move(made.base));
      return std::move(made.steps);
    }
  }
  template <class Before>
  static constexpr list_sizes<plan> guess(const Before& before) {
    plan_lengths sizes = before.template lengths<steps_pass>().steps;
    sizes.shared_inputs = before.output_count();
    return list_sizes<plan>::of_names(sizes);
  }
};

/// The same, with what overlaps and what is sent.
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
    overlap_moves(p);
    overlap_started(p);
    note_traffic(p);
    return p;
  }
  template <class Before>
  static constexpr list_sizes<plan> guess(const Before& before) {
    return memory_pass<Ordered>::guess(before);
  }
};

using passes = boost::mp11::mp_list<complete_pass, narrow_pass, choose_pass, search_pass, emit_pass, steps_pass, order_pass,
                                    place_pass<true>, place_pass<false>>;

}  // namespace gspmd::detail
