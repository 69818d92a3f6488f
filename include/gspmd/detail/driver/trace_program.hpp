// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/driver/given_shard.hpp"
#include "gspmd/detail/driver/returned_values.hpp"
#include "gspmd/detail/passes/choose/total_bytes.hpp"
#include "gspmd/detail/passes/list/program_to_plan.hpp"
#include "gspmd/detail/passes/rewrite/sub_axes.hpp"
#include "gspmd/detail/support/callable.hpp"
#include "gspmd/detail/support/constant_callable.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/detail/support/vec.hpp"
#include "gspmd/program/inputs.hpp"
#include "gspmd/program/mesh.hpp"

namespace gspmd::detail {

/// Returns true if a program can be compiled for this mesh and these inputs. If not, a single static_assert states the
/// reason.
template <class Mesh, class... Inputs>
consteval bool reports_arguments() {
  if constexpr (is_input<Mesh>)
    static_assert(is_mesh<Mesh>,
                  "gspmd: compile: the second argument is an input; write the mesh before the inputs: compile<program, "
                  "mesh<axis<\"data\", 2>>, input<float, shape<64>>>");
  else if constexpr (!is_mesh<Mesh>)
    static_assert(is_mesh<Mesh>, "gspmd: compile: the second argument is no mesh; write mesh<axis<\"data\", 2>>, with your axes");
  else if constexpr (!(ordered_input<Inputs>::has_shape && ...))
    static_assert((ordered_input<Inputs>::has_shape && ...),
                  "gspmd: input: the second argument is no shape<...>; write input<float, shape<64, 512>, split<\"data\", _>>, "
                  "with your extents");
  else if constexpr (!(ordered_input<Inputs>::has_split && ...))
    static_assert((ordered_input<Inputs>::has_split && ...),
                  "gspmd: input: the third argument is no split<...>; write input<float, shape<64, 512>, split<\"data\", _>>, "
                  "with your axes");
  else if constexpr (!(ordered_input<Inputs>::has_partial && ...))
    static_assert(
        (ordered_input<Inputs>::has_partial && ...),
        "gspmd: input: the fourth argument is no partial<...>; write input<float, shape<64>, split<_>, partial<\"data\">>, "
        "with your axes");
  else
    static_assert(
        (is_input<Inputs> && ...),
        "gspmd: compile: each input is an `input<T, shape<...>>`, or a `record` of inputs for a struct, or an `array_of` inputs "
        "(gspmd/program/input_arrays.hpp); for a vector or a tuple of layers name one record for each layer");
  return true;
}

template <class... A>
struct call_of<const unusable&, argument_list<A...>, void> {
  static constexpr bool compiles = false, refuses = false;
};

template <class Input>
using traced_input = decltype(Input::trace(std::declval<graph&>(), 0));

template <std::size_t Count>
struct wrong_inputs {
  static constexpr text make() {
    return text("compile: ")
           << static_cast<std::int64_t>(Count) << (Count == 1 ? " input is" : " inputs are")
           << " passed, and the callable takes another number of arguments, or other types; a record is one argument, "
              "a struct of values";
  }
};

template <auto Callable, class... Inputs>
using traced_call = call_with<const decltype(Callable)&, traced_input<Inputs>&...>;

/// A type with the form of `Result` that contains only values. It is the placeholder for the result of a callable that
/// returns other things, for example a number.
template <class Result>
struct of_values {
  using type = value;
};
template <class Result>
  requires(!std::is_void_v<Result> && !is_leaf<Result> && is_tree_of<Result, value>())
struct of_values<Result> {
  using type = Result;
};
template <class... Parts>
  requires(!is_tree_of<std::tuple<Parts...>, value>())
struct of_values<std::tuple<Parts...>> {
  using type = std::tuple<typename of_values<Parts>::type...>;
};
template <class First, class Second>
  requires(!is_tree_of<std::pair<First, Second>, value>())
struct of_values<std::pair<First, Second>> {
  using type = std::pair<typename of_values<First>::type, typename of_values<Second>::type>;
};

/// The result of the callable. If it cannot be called or returns something else, `result` is a placeholder, `fits` is
/// false, and the mistake has been reported. `returns` is true if the form of the result is known.
template <class Call, std::size_t InputCount>
struct checked_call {
  static constexpr bool fits = false, returns = false;
  using result = value;
};
template <class Call, std::size_t InputCount>
  requires Call::refuses
struct checked_call<Call, InputCount> {
  static constexpr bool fits = (refuse<mistake::inputs, wrong_inputs<InputCount>>(), false), returns = false;
  using result = value;
};
template <class Call, std::size_t InputCount>
  requires Call::compiles
struct checked_call<Call, InputCount> {
  static constexpr bool fits = returns_values<typename Call::result>(), returns = fits || is_tuple<typename Call::result>;
  using result = typename of_values<typename Call::result>::type;
};
template <auto Callable, class... Inputs>
using checked_program = checked_call<traced_call<Callable, Inputs...>, sizeof...(Inputs)>;

/// A mesh with an axis that the planner has cut (passes/rewrite/sub_axes.hpp).
template <class Mesh, axis_cut Cut>
struct cut_mesh {
  using before = Mesh;
  static constexpr axis_cut cut = Cut;
  static constexpr mesh_info info = cut_axis(Mesh::info, Cut);
  static constexpr int device_count = Mesh::device_count;
};
template <class Mesh, axis_cut Cut>
struct base_mesh<cut_mesh<Mesh, Cut>> {
  using type = typename base_mesh<Mesh>::type;
};

/// Returns the graph of a callable on the inputs as it was written, or its mistake.
template <auto Callable, class Mesh, class... Inputs>
constexpr graph trace_callable() {
  graph g;
  g.mesh = &Mesh::info;
  g.allow_replication = false;
  if constexpr (!accepts_meshes<Mesh>) g.fail({}, "compile", mistake::reported, "the meshes");
  int number = 0;
  const auto next = [&]<class Input>(std::type_identity<Input>) {
    auto argument = Input::trace(g, number);
    number += Input::leaves;
    return argument;
  };
  std::tuple arguments{next(std::type_identity<Inputs>{})...};
  if constexpr (!checked_program<Callable, Inputs...>::fits) {
    g.fail({}, "compile", mistake::reported, "the callable");
  } else {
    auto result = [&]<std::size_t... K>(std::index_sequence<K...>) {  // not std::apply, which would add six lines to every error
      return Callable(std::get<K>(arguments)...);
    }(std::index_sequence_for<Inputs...>{});
    for_each_leaf(result, [&](value& leaf) {
      if (leaf.is_valid()) g.outputs.push_back(leaf.id());
      else if (leaf.id() == reported_id) g.fail({}, "compile", mistake::reported, "see the error at the call");
      else
        g.fail({}, "compile", mistake::other,
               "a result of the callable is no value of this program; return results of operators");
    });
  }
  return g;
}

/// Returns the program in the global view, ready to be planned, or its mistake. `At` are the positions of the remaining
/// passes.
template <class Mesh, pass_positions At = pass_positions{}>
constexpr graph traced_to_plan(graph traced) {
  if (traced.failed()) return traced;
  graph program = program_to_plan<At>(std::move(traced));
  if (program.failed()) return program;
  if (const text problem = total_problem(program, Mesh::device_count); !problem.empty())
    program.fail({}, "compile", mistake::size, problem);
  return program;
}

template <auto Callable, class Mesh, class... Inputs>
constexpr graph trace_program() {
  return traced_to_plan<Mesh>(trace_callable<Callable, Mesh, Inputs...>());
}

/// Returns the placeholder graph of a refused program, so that a mistake causes only a single error. It has the inputs
/// of the program. Its results are constants with the types and shapes from a run of the callable. If there is no such
/// run (`Runs` is false, or it returned fewer results), the results are scalars with the type of the first input.
template <bool Runs, auto Callable, class Mesh, class... Inputs>
constexpr graph stand_in_program() {
  graph g;
  g.mesh = &Mesh::info;
  int number = 0;
  ((static_cast<void>(Inputs::trace(g, number)), number += Inputs::leaves), ...);
  constexpr std::size_t count = leaf_count<typename checked_program<Callable, Inputs...>::result>();
  graph run;
  if constexpr (Runs) run = trace_callable<Callable, Mesh, Inputs...>();
  for (std::size_t k = 0; k < count; ++k) {
    if (run.outputs.size() == count) {
      const node& n = run.nodes[static_cast<std::size_t>(run.outputs[k])];
      g.outputs.push_back(add_constant(g, n.type, n.shape, 0, 0, {}));
    } else {
      g.outputs.push_back(add_constant(g, g.nodes.empty() ? dtype::f32 : g.nodes[0].type, {}, 0, 0, {}));
    }
  }
  return g;
}

}  // namespace gspmd::detail
