// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/driver/returned_values.hpp"
#include "gspmd/detail/support/callable.hpp"
#include "gspmd/detail/support/foreign_names.hpp"
#include "gspmd/dynamic/builder.hpp"
#include "gspmd/dynamic/mesh.hpp"
#include "gspmd/dynamic/program.hpp"
#include "gspmd/program/inputs.hpp"
#include "gspmd/program/mesh.hpp"
#include "gspmd/program/tree.hpp"

/// The run-time path: the mesh, extents and shardings are known only when the program runs. The planner and the kernels
/// are those of `compile`. A mistake that `compile` reports as a compile error throws gspmd::error here, with the same
/// text and before the program runs.
namespace gspmd::dynamic {

/// Returns the builder that `compile` below would compile, so that you can plan it in another way.
///
/// **Errors.** Throws gspmd::error as `compile` does.
template <class Callable, class... Inputs>
builder build(Callable&& callable, const mesh& m, const Inputs&... inputs) {
  builder b(m);
  const auto trace = [&b](const auto& given) {
    if constexpr (detail::is_leaf<std::remove_cvref_t<decltype(given)>> && requires { given.leaves; }) return b.input(given);
    else return transform_leaves([&b](const input_spec& i) { return b.input(i, location::input(b.input_count())); }, given);
  };
  std::tuple<decltype(trace(inputs))...> arguments{trace(inputs)...};
  using call = detail::call_with<Callable&, decltype(trace(inputs))&...>;
  if constexpr (call::refuses) {
    static_assert(detail::written_so<Callable>,
                  "gspmd: compile: give one input for each argument of the callable; a record is one argument");
  } else if constexpr (call::compiles) {
    if constexpr (detail::returns_values<typename call::result, true>()) {
      auto result = std::apply(callable, arguments);
      detail::for_each_leaf(result, [&b](value& leaf) { b.output(leaf, location{"of the callable"}); });
    }
  }
  return b;
}

/// Compiles a callable for a mesh and inputs that are known at run time. The callable may be the same as for
/// `gspmd::compile`.
///
/// An input is a dynamic::input, or a group of inputs that the callable takes as the same group of values. An input may
/// also be an `input` or a `record` of the static path. Its type and shape are then known at compile time.
///
/// **Errors.** Throws gspmd::error for the first mistake, with the text of the compile error.
/// **Example.**
///
///     auto step =
///         dynamic::compile(mlp, m, dynamic::input<float>({n, 512}, {"data", ""}), input<float, shape<512, 2048>>{});
///     auto y = step.run(threads{}, x, w)[0];
template <class Callable, class... Inputs>
program compile(Callable&& callable, const mesh& m, const Inputs&... inputs) {
  return build(callable, m, inputs...).compile();
}
/// Compiles with options.
///
/// **Errors.** Throws gspmd::error for options that mesh::with refuses, and as the overload above.
/// **Example.**
///
///     auto step = dynamic::compile(mlp, m, {.memory = 512 * MiB}, dynamic::input<float>({n, 512}, {"data", ""}));
template <class Callable, class... Inputs>
program compile(Callable&& callable, const mesh& m, const options& given, const Inputs&... inputs) {
  return build(callable, m.with(given), inputs...).compile();
}

}  // namespace gspmd::dynamic
