// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <type_traits>

#include "gspmd/detail/driver/constant_tables.hpp"
#include "gspmd/detail/driver/trace_program.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// How much is partitioned in one evaluation. Clang stops after 1,048,576 steps, GCC after 33 million.
#if defined(__clang__)
inline constexpr int stretches_per_evaluation = 1;
#else
inline constexpr int stretches_per_evaluation = 16;
#endif

/// The local program after `Part` evaluations, if the guess of its size holds.
template <class Tables, std::size_t Part>
struct partition_part {
  static constexpr std::size_t nodes = Tables::traced.sizes.nodes;
  static constexpr std::size_t most_nodes = Part * stretches_per_evaluation * partitioner::nodes_per_stretch;
  static constexpr std::size_t last = most_nodes < nodes ? most_nodes : nodes;

  static constexpr partition_state make() {
    partition_state state;
    state.is_finished = true;
    if constexpr (nodes > 0) {
      const graph g = Tables::traced.thaw();
      partitioner parts(g, Tables::mesh(), Tables::completed);
      parts.begin();
      if constexpr (Part > 1) parts.load(partition_part<Tables, Part - 1>::state().thaw());
      parts.emit_nodes(stretches_per_evaluation);
      if (parts.can_finish()) state.program = finish_partition(parts, g, Tables::mesh());
      else state = parts.save();
    }
    return state;
  }
  template <partition_sizes Room>
  static constexpr constant_partition_state<Room> make_with_room() {
    const partition_state s = make();
    return constant_partition_state<Room>(s);
  }
  static constexpr partition_sizes guess{2 * last + 16, 2 * last + 16, 5 * nodes + 2 * last + 64};
  static constexpr constant_partition_state<guess> first = make_with_room<guess>();
  static constexpr const auto& state() {
    if constexpr (first.fits()) return first;
    else return exact<first.sizes>;
  }
  static constexpr partition_sizes sizes() { return first.sizes; }

 private:
  template <partition_sizes Room>
  static constexpr constant_partition_state<Room> exact = make_with_room<Room>();
};

/// The program that a callable is, run by the compiler.
template <graph_sizes Room, auto Callable, class Mesh, class... Inputs>
inline constexpr constant_graph<Room> callable_run_by_the_compiler = [] {
  const graph g = trace_program<Callable, Mesh, Inputs...>();
  return constant_graph<Room>(g);
}();

/// The first run; it is enough for most programs. Where it is not constant, the compiler has reported the reason: a function that
/// is not constexpr, a variable that is no constant, a recursion without an end.
template <auto Callable, class Mesh, class... Inputs>
struct first_trace {
  static constexpr const auto& graph = callable_run_by_the_compiler<graph_sizes{96, 32, 32}, Callable, Mesh, Inputs...>;
  static constexpr bool is_constant = requires { typename std::bool_constant<graph.failed>; };
};
inline constexpr constant_graph<graph_sizes{}> not_traced = [] {
  graph g;
  g.fail({}, "compile", mistake::reported, "the callable");
  return constant_graph<graph_sizes{}>(g);
}();

/// The tables of a compiled program. Compilers limit the steps of one evaluation (Clang: 1,048,576), so that each pass is an
/// evaluation of its own, from constant to constant.
template <auto Callable, class Mesh, class... Inputs>
struct static_tables {
  static constexpr const mesh_shape& mesh() { return Mesh::info.shape; }
  using first = first_trace<Callable, Mesh, Inputs...>;
  static constexpr const auto& frozen_graph() {
    if constexpr (!first::is_constant) return not_traced;
    else if constexpr (first::graph.fits()) return first::graph;
    else return callable_run_by_the_compiler<first::graph.sizes, Callable, Mesh, Inputs...>;
  }
  static constexpr const auto& traced = frozen_graph();
  static constexpr bool is_traced = !std::is_same_v<decltype(traced), decltype((not_traced))>;

  static constexpr std::array<sharding, traced.sizes.nodes> completed = [] {
    std::array<sharding, traced.sizes.nodes> result{};
    if (!traced.failed) {
      const graph g = traced.thaw();
      const auto list = complete_graph(g, Mesh::info.shape);
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = list[i];
    }
    return result;
  }();

  template <std::size_t Part>
  static auto find_last_part() {
    using part = partition_part<static_tables, Part>;
    if constexpr (requires { typename std::bool_constant<part::state().is_finished>; }) {
      if constexpr (!part::state().is_finished) return find_last_part<Part + 1>();
      else return std::type_identity<part>{};
    } else {
      return std::type_identity<part>{};  // no constant, as the compiler has reported
    }
  }
  using partitioned = typename decltype(find_last_part<1>())::type;

  static constexpr std::array<planned_node, traced.sizes.nodes> nodes = [] {
    std::array<planned_node, traced.sizes.nodes> result{};
    if (!traced.failed) {
      const graph g = traced.thaw();
      const partition_state local = partitioned::state().thaw();
      const auto list = list_nodes(g, Mesh::info.shape, local.program);
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
    } else if constexpr (traced.failed) {
      const graph g = trace_program<Callable, Mesh, Inputs...>();
      plan refused;
      refused.error = g.error;
      refused.broken = g.broken;
      return refused;
    } else {
      const graph g = traced.thaw();
      return schedule_program(g, Mesh::info.shape, partitioned::state().thaw().program, base);
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
      result.about.sizes.nodes = result.about.sizes.completed = traced.sizes.nodes;
      for (std::size_t i = 0; i < base.size() && i < Room.values; ++i) result.base[i] = base[i];
      return result;
    }
    const plan q = stand_in_plan<Mesh, leaf_count<typename checked_program<Callable, Inputs...>::result>(), Inputs...>();
    return {{sizes_of(q), false, p.broken}, constant_tables<Room>(q)};
  }
  static constexpr table_sizes guess = guess_sizes(traced.sizes.nodes, partitioned::sizes());
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
    if constexpr (!tables::traced.failed)
      if (may_cut_axes(tables::traced.nodes)) {
        const graph g = tables::traced.thaw();
        return find_cut(g, tables::completed);
      }
    return axis_cut{};
  }();
  static auto find() {
    if constexpr (cut.axis < 0) return std::type_identity<Mesh>{};
    else return planned_mesh<Callable, cut_mesh<Mesh, cut>, Inputs...>::find();
  }
  using type = typename decltype(find())::type;
};

}  // namespace gspmd::detail
