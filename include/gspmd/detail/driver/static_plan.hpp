// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "gspmd/detail/driver/static_passes.hpp"
#include "gspmd/detail/driver/trace_program.hpp"
#include "gspmd/detail/passes/list/next_try.hpp"

namespace gspmd::detail {

/// The graph of a callable, evaluated by the compiler. If the evaluation is not constant, the compiler has reported the
/// reason: a function without constexpr, a variable that is not a constant, or an endless recursion.
template <auto Callable, class Mesh, class... Inputs>
struct callable_run_by_the_compiler {
  static constexpr accepted_program run() {
    graph g = traced();
    const bool has_types = g.states_communication();  // types are found twice, in more steps than everything else
    if (!g.failed() && g.nodes.size() > (has_types ? longest_in_one_evaluation / 4 : longest_in_one_evaluation))
      return {std::move(g), true};
    return accepted<pass_positions{}>(std::move(g));
  }
  static constexpr graph traced() { return trace_callable<Callable, Mesh, Inputs...>(); }
  template <pass_positions At>
  static constexpr graph planned(graph traced) {
    return traced_to_plan<Mesh, At>(std::move(traced));
  }
  template <pass_positions At>
  static constexpr accepted_program accepted(graph traced) {
    graph g = planned<At>(std::move(traced));
    if (g.failed()) return refused<true>(g.broken);
    return {std::move(g)};
  }
  template <bool Runs>
  static constexpr accepted_program refused(mistake broken) {
    accepted_program p{stand_in_program<Runs, Callable, Mesh, Inputs...>()};
    p.broken = broken;
    return p;
  }
  /// Estimates the sizes of the lists. Programs with many inputs are long, and most have the same number of outputs.
  static constexpr list_sizes<accepted_program> guess() {
    constexpr std::size_t inputs = (std::size_t{0} + ... + static_cast<std::size_t>(Inputs::leaves));
    return {96 + 12 * inputs, inputs, 16 + inputs, 0, 4};
  }
};
template <auto Callable, class Mesh, class... Inputs>
inline constexpr bool is_constant_program =
    requires { typename std::bool_constant<frozen_result<callable_run_by_the_compiler<Callable, Mesh, Inputs...>>::is_made()>; };

/// A long program, ready to be planned. The run of the callable, the check of the types, and the other passes over the
/// graph are three separate evaluations.
template <class Run>
struct long_program {
  static constexpr graph traced() { return frozen_result<Run>::value().thaw(); }
  static constexpr mistake broken_first = program_to_plan<checks_as_written>(traced()).broken;
  static constexpr accepted_program run() {
    if constexpr (broken_first != mistake::none) return Run::template refused<true>(broken_first);
    else return Run::template accepted<after_checks>(traced());
  }
  static constexpr auto guess() { return list_sizes<accepted_program>(frozen_result<Run>::value().sizes); }
};
/// A program, ready to be planned: long or not.
template <class Run>
struct traced_program {
  static constexpr bool is_long = frozen_result<Run>::value().rest.is_as_traced;
  static constexpr const auto& frozen() {
    if constexpr (is_long) return frozen_result<long_program<Run>>::value();
    else return frozen_result<Run>::value();
  }
  /// Returns the text of the refusal. Requires a refused program.
  static constexpr text error() {
    if constexpr (!is_long) {
      return Run::template planned<pass_positions{}>(Run::traced()).error;
    } else {
      using long_one = long_program<Run>;
      constexpr pass_positions at = long_one::broken_first != mistake::none ? checks_as_written : after_checks;
      return Run::template planned<at>(long_one::traced()).error;
    }
  }
};

/// The placeholder for a program that is refused only when its communication is known, or whose run is not constant.
template <mistake Broken, auto Callable, class Mesh, class... Inputs>
struct refused_program {
  static constexpr accepted_program run() {
    return callable_run_by_the_compiler<Callable, Mesh, Inputs...>::template refused<Broken != mistake::reported>(Broken);
  }
  static constexpr list_sizes<accepted_program> guess() { return {32, 32, 32}; }
};

/// The same program on a mesh with a cut axis.
template <class Before, class Mesh>
struct program_on_cut_mesh {
  static constexpr accepted_program run() {
    accepted_program p = Before::frozen().thaw();
    cut_axis(p, Mesh::info, Mesh::cut.axis);
    return p;
  }
  static constexpr auto guess() { return list_sizes<accepted_program>(Before::frozen().sizes); }
};

template <class Make>
struct frozen_program {
  static constexpr const auto& frozen() { return frozen_result<Make>::value(); }
};

/// The mesh with a level of memory saving, for the passes.
template <class Mesh, int Saving>
struct mesh_that_saves {
  static constexpr mesh_info info = [] {
    auto m = Mesh::info;
    m.request.saving = Saving;
    return m;
  }();
};
template <class Mesh, int Saving>
using saving_mesh = std::conditional_t<Saving == 0, Mesh, mesh_that_saves<Mesh, Saving>>;

/// A program with its final mesh: the user's mesh, with axes cut if reshapes need it. `Best` is the best of the earlier
/// tries, or void.
template <class Program, class Mesh, saving_search Search = saving_search{}, class Best = void>
struct planned_program {
  static constexpr int Saving = Search.saving;
  using program = Program;
  using mesh = Mesh;
  using passes = static_passes<Program, saving_mesh<Mesh, Saving>>;
  static constexpr axis_cut cut = [] {
    if constexpr (Saving == 0 && may_cut_axes(passes::lists_of_program().nodes)) return passes::template of<cut_pass>();
    return axis_cut{};
  }();
  static constexpr bool is_refused = passes::template of<refuse_pass>() != mistake::none;
  static constexpr planned_try found() {
    if constexpr (cut.axis >= 0 || Mesh::info.request.most_memory <= 0) return {cut};
    else if constexpr (is_refused) return {cut, true};
    else return {cut, false, peak_bytes(plan_view(passes::plan()))};
  }
  static auto find() {
    constexpr std::int64_t least = [] {
      if constexpr (std::is_void_v<Best>) return std::int64_t{0};
      else return Best::found().holds;
    }();
    constexpr next_try next = after(found(), passes::request(), least, Search, passes::lists_of_program().nodes);
    using best = std::conditional_t<next.was_best, planned_program, Best>;
    // The branch that ends the recursion is last. If `next` is not a constant, because of another error, compilers take
    // the last branch. Another branch would recurse without end.
    if constexpr (next.is == next_try::way::on_cut_mesh) {
      using refined = cut_mesh<Mesh, cut>;
      return planned_program<frozen_program<program_on_cut_mesh<Program, refined>>, refined>::find();
    } else if constexpr (next.is == next_try::way::saving_more) {
      return planned_program<Program, Mesh, next.search, best>::find();
    } else {
      return std::type_identity<best>{};
    }
  }
  using type = typename decltype(find())::type;
};

/// The program after a pass at pass_position::completed. The pass gets the shardings from completion. This completion
/// is a separate evaluation, as in the plan of a program.
template <class Program, class Mesh, std::size_t Pass>
struct completed_program {
 private:
  static constexpr graph passed() {
    graph g = Program::frozen().thaw();
    if (g.passes[Pass]->run_completed(g, static_passes<Program, Mesh>::template of<complete_pass>().of) == node_order::changed &&
        !g.failed())
      g = canonical_order(g);
    return g;
  }
  struct make {
    static constexpr accepted_program run() { return {passed()}; }
    static constexpr auto guess() { return list_sizes<accepted_program>(Program::frozen().sizes); }
  };

 public:
  static constexpr const auto& frozen() { return frozen_result<make>::value(); }
  static constexpr text error() { return passed().error; }
};

/// The program to plan on this mesh: the program after its passes at pass_position::completed, from number `Pass` on.
/// If some axes are planned before, modes/explicit_axes.hpp defines it.
template <class Program, class Mesh, std::size_t Pass = 0>
struct program_on {
  /// Returns the number of the next pass that applies, or the number of passes.
  static constexpr std::size_t next() {
    const auto carried = lists_of_program(Program::frozen()).passes;
    if (Program::frozen().rest.broken != mistake::none) return carried.size();
    for (std::size_t k = Pass; k < carried.size(); ++k)
      if (carried[k]->position == pass_position::completed && carried[k]->applies(Program::frozen().thaw())) return k;
    return carried.size();
  }
  static auto find() {
    if constexpr (constexpr std::size_t k = next(); k == lists_of_program(Program::frozen()).passes.size())
      return std::type_identity<Program>{};
    else return program_on<completed_program<Program, Mesh, k>, Mesh, k + 1>{};
  }
  using type = typename decltype(find())::type;
};

/// The plan of a compiled program, or of its placeholder if the program is refused.
template <auto Callable, class Mesh, class... Inputs>
struct static_plan {
 private:
  using run = callable_run_by_the_compiler<Callable, Mesh, Inputs...>;
  template <mistake Broken>
  using stand_in = planned_program<frozen_program<refused_program<Broken, Callable, Mesh, Inputs...>>, Mesh>;

  static auto find_traced() {
    if constexpr (is_constant_program<Callable, Mesh, Inputs...>)
      return typename planned_program<typename program_on<traced_program<run>, Mesh>::type, Mesh>::type{};
    else return stand_in<mistake::reported>{};
  }
  using traced = decltype(find_traced());
  static constexpr mistake refused_when_traced = traced::program::frozen().rest.broken;
  static constexpr mistake refused_when_planned = [] {
    constexpr auto most = traced::mesh::info.request.most_memory;
    if constexpr (traced::is_refused) return traced::passes::template of<refuse_pass>();
    else if constexpr (traced::passes::plan().rest.broken == mistake::facts) return mistake::facts;
    return most > 0 && traced::found().holds > most ? mistake::memory : mistake::none;
  }();
  static auto find() {
    if constexpr (refused_when_planned != mistake::none) return stand_in<refused_when_planned>{};
    else return traced{};
  }

 public:
  using planned = decltype(find());
  using mesh = typename planned::mesh;
  using passes = typename planned::passes;
  /// The rule that the program violates.
  static constexpr mistake broken = refused_when_traced != mistake::none ? refused_when_traced : refused_when_planned;
  static constexpr bool is_accepted = broken == mistake::none;
  static constexpr plan_view view{passes::plan()};

  struct refusal {
    static constexpr text make() {
      if constexpr (refused_when_traced != mistake::none) return program_on<traced_program<run>, Mesh>::type::error();
      else if constexpr (refused_when_planned == mistake::memory)
        return too_large(traced::found().holds, traced::mesh::info.request.most_memory)
               << "; a plan of the compiler recomputes values only if you write recompute(f); write it, or plan at run time";
      else if constexpr (refused_when_planned == mistake::facts) return why_refused_steps(plan_view(traced::passes::plan()));
      else return refuse_pass::why(typename traced::passes{});
    }
  };
};

}  // namespace gspmd::detail
