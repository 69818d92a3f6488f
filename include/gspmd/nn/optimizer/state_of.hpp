// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

#include "gspmd/detail/driver/edge_elements.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/program/inputs.hpp"
#include "gspmd/program/tree.hpp"

namespace gspmd {
namespace detail {

/// Adds an input for each tensor of a state that `init` made in another program. The input has the type, shape and
/// annotation of the tensor.
template <class State>
constexpr State add_state_inputs(graph& g, State made_there, int number) {
  for_each_leaf(made_there, [&](value& leaf) {
    if (!leaf.is_valid()) return;
    const node there = leaf.node();
    const int id = add_parameter(g, there.type, there.shape, location::input(number++));
    node& n = g.nodes[static_cast<std::size_t>(id)];
    n.annotated = there.annotated;
    n.annotation = there.annotation;
    leaf = {&g, id};
  });
  return made_there;
}

}  // namespace detail

namespace optimizer {

/// The input of a program that is the state of an optimizer. `Params` is the input of the parameters: an `input`, a
/// `record` or an `array_of`. The tensors of the state have the shardings of their parameters.
///
/// **Example.**
///
///     compile<train, pod, weights_in, optimizer::state_of<optimizer::adam, weights_in>, batch_in>
template <class Optimizer, class Params>
struct state_of {
  using params = decltype(Params::trace(std::declval<gspmd::detail::graph&>(), 0));
  using state = decltype(Optimizer{}.init(std::declval<const params&>()));
  static constexpr int leaves = static_cast<int>(gspmd::detail::leaf_count<state>());

  static constexpr state trace(gspmd::detail::graph& g, int number) {
    gspmd::detail::graph alone;
    alone.mesh = g.mesh;
    return gspmd::detail::add_state_inputs(g, Optimizer{}.init(Params::trace(alone, 0)), number);
  }
};

/// Adds inputs for the state of an optimizer to a program that is built at run time. `builder` is a dynamic::builder.
/// The parameters are inputs or annotated values.
///
/// **Example.**
///
///     const auto state = optimizer::state_inputs(b, adam, w);
template <class Builder, class Optimizer, class Params>
auto state_inputs(Builder& builder, const Optimizer& optimizer, Params params) {
  auto& g = builder.graph();
  gspmd::detail::graph alone = g;
  gspmd::detail::for_each_leaf(params, [&](value& v) {
    if (v.is_valid()) v = {&alone, v.id()};
  });
  return gspmd::detail::add_state_inputs(g, optimizer.init(params), builder.input_count());
}

}  // namespace optimizer

namespace detail {
template <class Optimizer, class Params>
inline constexpr bool is_input<optimizer::state_of<Optimizer, Params>> = true;
template <class Optimizer, class Params>
struct declared_elements<optimizer::state_of<Optimizer, Params>> {
  using type = boost::mp11::mp_repeat_c<boost::mp11::mp_list<float>,
                                        static_cast<std::size_t>(optimizer::state_of<Optimizer, Params>::leaves)>;
};
}  // namespace detail

}  // namespace gspmd
