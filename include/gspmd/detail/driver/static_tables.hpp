// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <type_traits>

#include "gspmd/detail/driver/constant_tables.hpp"
#include "gspmd/detail/driver/trace_program.hpp"
#include "gspmd/detail/support/frozen.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// How much is chosen in one evaluation. Clang stops after 1,048,576 steps, GCC after 33 million; a price may take thousands.
#if defined(__clang__)
inline constexpr int nodes_per_evaluation = 64, prices_per_evaluation = 96;
#else
inline constexpr int nodes_per_evaluation = 1024, prices_per_evaluation = 2048;
#endif

/// What is chosen after `Part` evaluations.
template <class Tables, std::size_t Part>
struct chosen_part {
  static constexpr std::size_t nodes = Tables::node_count;

  struct make {
    static constexpr choose_state run() {
      const graph g = Tables::program();
      choose_state state(g);
      if constexpr (Part > 1) state = chosen_part<Tables, Part - 1>::state().thaw();
      const value_uses uses = uses_of(g);
      chooser(g, Tables::mesh(), uses, Tables::wishes, state).run(nodes_per_evaluation, prices_per_evaluation);
      return state;
    }
    static constexpr list_sizes<choose_state> guess() {
      const std::size_t most = Part * nodes_per_evaluation;
      const std::size_t last = most < nodes ? most : nodes;
      return {last, 2 * last + 8, 2 * last + 32, last + 32, 32, 2 * last + 32, nodes, nodes, nodes, 16, last + 16, last + 16, 16};
    }
  };
  static constexpr const auto& state() { return frozen_result<make>::value(); }
};

/// The program that a callable is, run by the compiler; empty if it is refused.
struct traced_program {
  graph program;
  bool failed = false;

  template <class S, class F>
  static constexpr auto lists(S& s, F f) {
    return graph::lists(s.program, f);
  }
  template <class S, class F>
  static constexpr auto rest(S& s, F f) {
    return f(s.program.mesh, s.program.has_regions, s.program.allow_replication, s.failed);
  }
};
template <auto Callable, class Mesh, class... Inputs>
struct callable_run_by_the_compiler {
  static constexpr traced_program run() {
    graph g = trace_program<Callable, Mesh, Inputs...>();
    if (g.failed()) return {{}, true};
    return {std::move(g), false};
  }
  static constexpr list_sizes<traced_program> guess() { return {96, 32, 32}; }
};

/// Where the run is not constant, the compiler has reported the reason: a function that is not constexpr, a variable that is no
/// constant, a recursion without an end.
template <auto Callable, class Mesh, class... Inputs>
struct first_trace {
  using made = frozen_result<callable_run_by_the_compiler<Callable, Mesh, Inputs...>>;
  static constexpr bool is_constant = requires { typename std::bool_constant<made::is_made()>; };
};
struct nothing_traced {
  static constexpr traced_program run() { return {{}, true}; }
  static constexpr list_sizes<traced_program> guess() { return {}; }
};

/// The tables of a compiled program. Compilers limit the steps of one evaluation (Clang: 1,048,576), so that each pass is an
/// evaluation of its own, from constant to constant.
template <auto Callable, class Mesh, class... Inputs>
struct static_tables {
  static constexpr const mesh_shape& mesh() { return Mesh::info.shape; }
  using first = first_trace<Callable, Mesh, Inputs...>;
  static constexpr bool is_traced = first::is_constant;
  static constexpr const auto& frozen_graph() {
    if constexpr (!first::is_constant) return frozen_result<nothing_traced>::value();
    else return first::made::value();
  }
  static constexpr const auto& traced = frozen_graph();
  static constexpr bool failed = std::get<3>(traced.rest);
  static constexpr std::size_t node_count = traced.sizes.of[0];
  static constexpr graph program() { return traced.thaw().program; }

  static constexpr std::array<sharding, node_count> completed = [] {
    std::array<sharding, node_count> result{};
    if (!failed) {
      const auto list = complete_graph(program(), mesh());
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = list[i];
    }
    return result;
  }();
  static constexpr std::array<sharding, node_count> wishes = [] {
    std::array<sharding, node_count> result{};
    const graph g = program();
    const auto list = narrowed(g, mesh(), uses_of(g), completed);
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = list[i];
    return result;
  }();

  template <std::size_t Part>
  static auto find_last_part() {
    using part = chosen_part<static_tables, Part>;
    if constexpr (std::get<1>(part::state().rest)) return std::type_identity<part>{};
    else return find_last_part<Part + 1>();
  }
  using chosen = typename decltype(find_last_part<1>())::type;
  struct emit {
    static constexpr local_program run() {
      const graph g = program();
      return emit_program(g, mesh(), uses_of(g), chosen::state().thaw().table);
    }
    static constexpr list_sizes<local_program> guess() {
      const std::size_t values = chosen::state().sizes.of[5];
      return {values, values + 16, 32, 32, node_count};
    }
  };
  static constexpr const auto& emitted() { return frozen_result<emit>::value(); }

  static constexpr std::array<planned_node, node_count> nodes = [] {
    std::array<planned_node, node_count> result{};
    if (!failed) {
      const auto list = list_nodes(program(), mesh(), emitted().thaw());
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = list[i];
    }
    return result;
  }();
  static constexpr plan make(vec<int>& base) {
    if constexpr (!is_traced) {
      plan refused;
      refused.error << "the callable";
      refused.broken = mistake::reported;
      return refused;
    } else if constexpr (failed) {
      const graph g = trace_program<Callable, Mesh, Inputs...>();
      plan refused;
      refused.error = g.error;
      refused.broken = g.broken;
      return refused;
    } else {
      return schedule_program(program(), mesh(), emitted().thaw(), base);
    }
  }
  struct facts {
    table_sizes sizes;
    bool ok = false;
    mistake broken = mistake::other;
  };
  /// The steps, with room to spare, and how many there are; of a refused program the stand-in.
  template <table_sizes Room>
  struct scheduled {
    facts about;
    constant_tables<Room> tables;
    std::array<int, Room.values> base{};
  };
  template <table_sizes Room>
  static constexpr scheduled<Room> schedule() {
    vec<int> base;
    const plan p = make(base);
    if (p.error.empty()) {
      scheduled<Room> result{{sizes_of(p), true, mistake::other}, constant_tables<Room>(p)};
      result.about.sizes.nodes = result.about.sizes.completed = node_count;
      for (std::size_t i = 0; i < base.size() && i < Room.values; ++i) result.base[i] = base[i];
      return result;
    }
    const plan q = stand_in_plan<Mesh, leaf_count<typename checked_program<Callable, Inputs...>::result>(), Inputs...>();
    return {{sizes_of(q), false, p.broken}, constant_tables<Room>(q)};
  }
  static constexpr table_sizes guess = [] {
    std::size_t movements = 0;
    for (const auto& op : std::get<1>(emitted().lists)) movements += op.movement >= 0 ? 1 : 0;
    return guess_sizes(node_count, emitted().sizes.of[0], emitted().sizes.of[1], movements);
  }();
  template <table_sizes Room>
  static constexpr scheduled<Room> scheduled_in = schedule<Room>();
  static constexpr facts measured = scheduled_in<guess>.about;
  static constexpr const auto& steps = []() -> const auto& {
    if constexpr (fits(measured.sizes, guess)) return scheduled_in<guess>;
    else return scheduled_in<measured.sizes>;
  }();
  struct new_order {
    bool is_any = false;
    std::array<int, measured.sizes.steps> steps{};
  };
  static constexpr new_order order = [] {
    new_order result;
    if constexpr (measured.ok) {
      const std::span<const int> base(steps.base.data(), measured.sizes.values);
      result.is_any = step_orderer(steps.tables.steps_view(measured.sizes), base).run(result.steps.data());
    }
    return result;
  }();
  template <bool Ordered>
  static constexpr constant_tables<measured.sizes> placed = [] {
    if constexpr (!measured.ok) return constant_tables<measured.sizes>(steps.tables);
    plan p = steps.tables.thaw(measured.sizes);
    p.nodes.assign(nodes.begin(), nodes.end());
    p.completed.assign(completed.begin(), completed.end());
    if constexpr (Ordered) put_in_order(p, order.steps);
    place_in_memory(p, vec<int>(steps.base.data(), steps.base.data() + measured.sizes.values));
    return constant_tables<measured.sizes>(p);
  }();
  static constexpr const constant_tables<measured.sizes>& choose() {
    if constexpr (order.is_any) return is_smaller(placed<true>, placed<false>) ? placed<true> : placed<false>;
    else return placed<false>;
  }
  static constexpr const constant_tables<measured.sizes>& tables = choose();
  static constexpr plan_view view{tables};

  struct refusal {
    static constexpr text make() {
      vec<int> base;
      return static_tables::make(base).error;
    }
  };
};

/// The mesh that a program is planned on: the user's, with the axes cut that reshapes split.
template <auto Callable, class Mesh, class... Inputs>
struct planned_mesh {
  using tables = static_tables<Callable, Mesh, Inputs...>;
  static constexpr axis_cut cut = [] {
    if constexpr (!tables::failed)
      if (may_cut_axes(std::get<0>(tables::traced.lists))) return find_cut(tables::program(), tables::completed);
    return axis_cut{};
  }();
  static auto find() {
    if constexpr (cut.axis < 0) return std::type_identity<Mesh>{};
    else return planned_mesh<Callable, cut_mesh<Mesh, cut>, Inputs...>::find();
  }
  using type = typename decltype(find())::type;
};

}  // namespace gspmd::detail
