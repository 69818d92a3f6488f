// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "gspmd/detail/driver/static_passes.hpp"
#include "gspmd/detail/driver/trace_program.hpp"
#include "gspmd/detail/ir/peak_memory.hpp"
#include "gspmd/detail/passes/save_memory.hpp"

namespace gspmd::detail {

/// A program for one giant device. A refused one is its stand-in, and says so.
struct accepted_program {
  graph program;
  mistake broken = mistake::none;
  bool is_as_traced = false;          // program_to_plan is an evaluation of its own, as the program is long
  pass_of_mode type_local = nullptr;  // of such a one

  template <class S, class F>
  static constexpr auto lists(S& s, F f) {
    return graph::lists(s.program, f);
  }
  template <class S, class F>
  static constexpr auto rest(S& s, F f) {
    return f(s.program.mesh, s.program.has_regions, s.program.allow_replication, s.broken, s.program.largest_bytes,
             s.program.find_types, s.is_as_traced, s.type_local);
  }
};

/// The graph of a callable, run by the compiler. Where the run is not constant, the compiler has reported the reason: a function that is
/// not constexpr, a variable that is no constant, a recursion without an end.
template <auto Callable, class Mesh, class... Inputs>
struct callable_run_by_the_compiler {
  static constexpr accepted_program run() {
    graph g = traced();
    const bool has_types =
        g.find_types != nullptr || g.type_local != nullptr;  // which are found twice, in more steps than all else
    if (!g.failed() && g.nodes.size() > (has_types ? longest_in_one_evaluation / 4 : longest_in_one_evaluation)) {
      const auto type_local = g.type_local;
      return {std::move(g), mistake::none, true, type_local};
    }
    check_types(g);
    return accepted(std::move(g));
  }
  static constexpr graph traced() { return trace_callable<Callable, Mesh, Inputs...>(); }
  static constexpr graph planned(graph traced) { return traced_to_plan<Mesh>(std::move(traced)); }
  static constexpr accepted_program accepted(graph traced) {
    graph g = planned(std::move(traced));
    if (g.failed()) return refused(g.broken);
    return {std::move(g)};
  }
  static constexpr accepted_program refused(mistake broken) {
    return {stand_in_program<true, Callable, Mesh, Inputs...>(), broken};
  }
  /// Programs of many inputs are long, and most give as many outputs.
  static constexpr list_sizes<accepted_program> guess() {
    constexpr std::size_t inputs = (std::size_t{0} + ... + static_cast<std::size_t>(Inputs::leaves));
    return {96 + 12 * inputs, inputs, 16 + inputs};
  }
};
template <auto Callable, class Mesh, class... Inputs>
inline constexpr bool is_constant_program =
    requires { typename std::bool_constant<frozen_result<callable_run_by_the_compiler<Callable, Mesh, Inputs...>>::is_made()>; };

/// A long program, in the order in which it is planned: another evaluation goes on with what the run of its callable left.
template <class Run>
struct long_program {
  static constexpr graph traced() {
    accepted_program run = frozen_result<Run>::value().thaw();
    run.program.type_local = run.type_local;
    return std::move(run.program);
  }
  static constexpr mistake mistyped = [] {
    graph g = traced();
    check_types(g);
    return g.broken;
  }();
  static constexpr accepted_program run() {
    if constexpr (mistyped != mistake::none) return Run::refused(mistyped);
    else return Run::accepted(traced());
  }
  static constexpr auto guess() { return list_sizes<accepted_program>(frozen_result<Run>::value().sizes); }
};
/// A program as it is planned, whether long or not.
template <class Run>
struct traced_program {
  static constexpr bool is_long = item<6>(frozen_result<Run>::value().rest);
  static constexpr const auto& frozen() {
    if constexpr (is_long) return frozen_result<long_program<Run>>::value();
    else return frozen_result<Run>::value();
  }
  /// The text of the refusal, of a program that is refused.
  static constexpr text error() {
    graph g;
    if constexpr (is_long) {
      g = long_program<Run>::traced();
      if constexpr (long_program<Run>::mistyped == mistake::none) return Run::planned(std::move(g)).error;
    } else {
      g = Run::traced();
    }
    check_types(g);
    return Run::planned(std::move(g)).error;
  }
};

/// The stand-in for a program that is refused only where its communication is known, or whose run is not constant.
template <mistake Broken, auto Callable, class Mesh, class... Inputs>
struct refused_program {
  static constexpr accepted_program run() {
    return {stand_in_program<Broken != mistake::reported, Callable, Mesh, Inputs...>(), Broken};
  }
  static constexpr list_sizes<accepted_program> guess() { return {32, 32, 32}; }
};

/// The same program on a mesh with a cut axis.
template <class Before, class Mesh>
struct program_on_cut_mesh {
  static constexpr accepted_program run() {
    accepted_program p = Before::frozen().thaw();
    cut_axis(p.program, Mesh::info, Mesh::cut.axis);
    return p;
  }
  static constexpr auto guess() { return list_sizes<accepted_program>(Before::frozen().sizes); }
};

template <class Make>
struct frozen_program {
  static constexpr const auto& frozen() { return frozen_result<Make>::value(); }
};

/// The mesh as the passes see it.
template <class Mesh, int Saving>
struct mesh_that_saves {
  static constexpr mesh_info info = [] {
    auto m = Mesh::info;
    m.shape.saving = Saving;
    return m;
  }();
};
template <class Mesh, int Saving>
using saving_mesh = std::conditional_t<Saving == 0, Mesh, mesh_that_saves<Mesh, Saving>>;

/// A program on the mesh that it is planned on: the user's, with the axes cut that reshapes split.
template <class Program, class Mesh, int Saving = 0>
struct planned_program {
  using program = Program;
  using mesh = Mesh;
  using passes = static_passes<Program, saving_mesh<Mesh, Saving>>;
  static constexpr axis_cut cut = [] {
    if constexpr (may_cut_axes(item<0>(Program::frozen().lists)))
      return find_cut(passes::program(), passes::template of<complete_pass>().of);
    return axis_cut{};
  }();
  static auto find() {
    if constexpr (cut.axis >=
                  0) {  // not where it is no constant: compilers take the other branch then, and this one would not end
      using refined = cut_mesh<Mesh, cut>;
      return planned_program<frozen_program<program_on_cut_mesh<Program, refined>>, refined>::find();
    } else if constexpr (is_too_large() && Saving < most_saving) {
      using other = typename planned_program<Program, Mesh, Saving + 1>::type;
      if constexpr (other::is_refused || peak_bytes(plan_view(other::passes::plan())) >= peak_bytes(plan_view(passes::plan())))
        return std::type_identity<planned_program>{};
      else return std::type_identity<other>{};
    } else {
      return std::type_identity<planned_program>{};
    }
  }
  static constexpr bool is_refused = item<2>(passes::template frozen<steps_pass>().rest) != mistake::none;
  /// Whether a plan is too large for the memory of a device. Of two levels of saving the one that holds less is looked at: see
  /// plan_within_memory.
  static constexpr bool is_too_large() {
    if constexpr (Mesh::info.shape.most_memory <= 0) return false;
    else if constexpr (is_refused) return false;
    else return peak_bytes(plan_view(passes::plan())) > Mesh::info.shape.most_memory;
  }
  using type = typename decltype(find())::type;
};

/// The program that is planned of one on this mesh: it itself, but where some axes are planned before (modes/explicit_axes.hpp).
template <class Program, class Mesh>
struct program_on {
  using type = Program;
};

/// The plan of a compiled program, or of its stand-in if it is refused.
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
  static constexpr mistake refused_when_traced = item<3>(traced::program::frozen().rest);
  static constexpr mistake refused_when_planned = [] {
    constexpr mistake by_steps = item<2>(traced::passes::template frozen<steps_pass>().rest);
    return by_steps == mistake::none && traced::is_too_large() ? mistake::memory : by_steps;
  }();
  static auto find() {
    if constexpr (refused_when_planned != mistake::none) return stand_in<refused_when_planned>{};
    else return traced{};
  }

 public:
  using planned = decltype(find());
  using mesh = typename planned::mesh;
  using passes = typename planned::passes;
  /// The rule that the program breaks.
  static constexpr mistake broken = refused_when_traced != mistake::none ? refused_when_traced : refused_when_planned;
  static constexpr bool is_accepted = broken == mistake::none;
  static constexpr plan_view view{passes::plan()};

  struct refusal {
    static constexpr text make() {
      if constexpr (refused_when_traced != mistake::none) return program_on<traced_program<run>, Mesh>::type::error();
      else if constexpr (refused_when_planned == mistake::memory)
        return too_large(peak_bytes(plan_view(traced::passes::plan())), traced::mesh::info.shape.most_memory);
      else return schedule_pass::begin(typename traced::passes{}).out.error;
    }
  };
};

}  // namespace gspmd::detail
