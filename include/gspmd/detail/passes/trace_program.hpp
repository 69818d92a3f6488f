// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/exec/given_shard.hpp"
#include "gspmd/detail/passes/canonical.hpp"
#include "gspmd/detail/passes/plan_passes.hpp"
#include "gspmd/detail/passes/sub_axes.hpp"
#include "gspmd/detail/support/vec.hpp"
#include "gspmd/inputs.hpp"
#include "gspmd/mesh.hpp"

namespace gspmd::detail {

template <class Input>
using traced_input = decltype(Input::trace(std::declval<graph&>(), 0));

template <auto Callable, class... Inputs>
inline constexpr bool takes = std::is_invocable_v<decltype(Callable), traced_input<Inputs>&...>;

template <auto Callable, class... Inputs>
struct traced_result {
  using type = value;
};

template <std::size_t Count>
struct wrong_inputs {
  static constexpr text make() {
    return text("compile: ") << static_cast<std::int64_t>(Count)
                             << " inputs are given, and the callable takes another number of arguments; a record is one argument";
  }
};
template <auto Callable, class... Inputs>
  requires takes<Callable, Inputs...>
struct traced_result<Callable, Inputs...> {
  using type = std::remove_cvref_t<std::invoke_result_t<decltype(Callable), traced_input<Inputs>&...>>;
};

/// A mesh of which the planner cut an axis (passes/sub_axes.hpp).
template <class Mesh, axis_cut Cut>
struct cut_mesh {
  using base = typename base_mesh<Mesh>::type;  // the user's
  static constexpr mesh_info info = cut_axis(Mesh::info, Cut);
  static constexpr int device_count = Mesh::device_count;
  static constexpr void refine(graph& g) {
    if constexpr (requires { Mesh::refine(g); }) Mesh::refine(g);
    cut_axis(g, info, Cut.axis);
  }
};
template <class Mesh, axis_cut Cut>
struct base_mesh<cut_mesh<Mesh, Cut>> {
  using type = typename cut_mesh<Mesh, Cut>::base;
};

/// Traces a callable on the inputs; `graph` is the program for one giant device, or says what is wrong with it.
template <auto Callable, class Mesh, class... Inputs>
constexpr graph trace_program() {
  graph g;
  g.mesh = &base_mesh<Mesh>::type::info;
  g.allow_replication = false;
  if constexpr (!accepts_meshes<typename base_mesh<Mesh>::type>) g.fail({}, "compile", mistake::reported, "the meshes");
  int number = 0;
  const auto next = [&]<class Input>(std::type_identity<Input>) {
    auto argument = Input::trace(g, number);
    number += Input::leaves;
    return argument;
  };
  auto arguments = std::tuple{next(std::type_identity<Inputs>{})...};
  if constexpr (!takes<Callable, Inputs...>) {
    g.fail({}, "compile", mistake::reported, "the callable does not take these inputs");
  } else {
    auto result = std::apply(Callable, arguments);
    for_each_leaf(result, [&](value& leaf) {
      if (leaf.is_valid()) g.outputs.push_back(leaf.id());
      else
        g.fail({}, "compile", mistake::other, "a result of the callable is no value of this program; return what operators give");
    });
  }
  if (g.failed()) return g;
  if constexpr (requires { Mesh::refine(g); }) Mesh::refine(g);
  return canonical_order(g);
}

/// What stands in for a refused program, so that one mistake is one error: its inputs, and numbers as its results.
template <class Mesh, std::size_t Outputs, class... Inputs>
constexpr plan stand_in_plan() {
  graph g;
  g.mesh = &Mesh::info;
  int number = 0;
  ((static_cast<void>(Inputs::trace(g, number)), number += Inputs::leaves), ...);
  for (std::size_t k = 0; k < Outputs; ++k) g.outputs.push_back(add_constant(g, dtype::f32, {}, 0, 0, {}));
  vec<int> base;
  plan p = plan_without_memory(g, Mesh::info.shape, base);
  place_in_memory(p, std::move(base));
  return p;
}

}  // namespace gspmd::detail
