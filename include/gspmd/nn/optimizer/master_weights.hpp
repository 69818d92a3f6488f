// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "gspmd/nn/optimizer/update.hpp"

namespace gspmd {
namespace optimizer {

/// The parameters as floats, and the state of the optimizer that updates the floats.
template <class Params, class State>
struct master_state {
  Params master;
  State state;
};

}  // namespace optimizer

namespace detail {

/// Returns a group of floats. Tensors of narrow types (bf16, f16) become f32. If `Beside` is true, the results have the
/// shardings of the tensors, as state does.
template <bool Beside, class Tree>
constexpr Tree as_wide_floats(Tree tree, location at) {
  for_each_leaf(tree, [at](value& v) {
    if (!v.is_valid() || !is_floating(v.type()) || !is_narrow(v.type())) return;
    const value wide = quantity(v, at).as(dtype::f32).tensor();
    if constexpr (!Beside) v = wide;
    else v = v.node().annotated ? lie_beside(wide, v, at) : shard_alike(wide, v, at);
  });
  return tree;
}

}  // namespace detail

namespace optimizer {

/// An optimizer for bf16 or f16 parameters that keeps master weights: float copies of the parameters, next to its
/// moments.
///
/// The optimizer updates the floats, from gradients that are converted to float. The new parameters are the rounded
/// floats. So small updates are not lost. init(params) starts with the parameters as they are. Parameters that are
/// already wide floats are updated as they are, and the state has a copy too. A mask of weight decay gets the names of
/// the parameters.
///
/// **Communication.** In a step that shards its weight updates (weight_update.hpp), the floats and the moments stay in
/// parts. The gathered parameters are narrow: half the bytes of floats (Xu et al. 2020, 4.2).
/// **Errors.** The errors of the optimizer; state that does not match the parameters.
/// **Example.**
///
///     constexpr optimizer::with_master_weights<optimizer::adamw> adamw{{.rate = 1e-3}};
///     const auto next = adamw.update(w, grad(loss, w), state);   // state.master is the group of floats
///
/// **Source.** Micikevicius et al. 2018, "Mixed Precision Training", 3.1.
template <class Optimizer>
struct with_master_weights {
  static_assert(
      !requires { Optimizer::reformatted_for; },
      "gspmd: with_master_weights: the floats have the shapes of the parameters; write reformatted<with_master_weights<...>, N>, "
      "so "
      "that they have the shapes of the moments");
  Optimizer of{};

  template <class Params>
  constexpr auto init(const Params& params, location at = location::current()) const {
    const Params master = gspmd::detail::as_wide_floats<true>(params, at);
    return master_state<Params, decltype(of.init(master, at))>{master, of.init(master, at)};
  }
  template <class Params, class Grads, class State>
  constexpr updated<Params, State> update(const Params& params, const Grads& grads, const State& state, value given_rate = {},
                                          location at = location::current()) const {
    updated<Params, State> next{params, state};
    using wanted = decltype(init(params, at));
    if constexpr (gspmd::detail::is_update<Params, Grads, State, wanted>()) {
      const auto asked = gspmd::detail::parameters_of(next.params);  // the floats have no names of their own
      Optimizer named = of;
      gspmd::detail::ask_about(named, asked);
      const auto moved = named.update(state.master, gspmd::detail::as_wide_floats<false>(grads, at), state.state, given_rate, at);
      next.state.master = moved.params;
      next.state.state = moved.state;
      const auto before = gspmd::detail::leaves_in(next.params), after = gspmd::detail::leaves_in(next.state.master);
      if (before.size() != after.size()) {
        gspmd::detail::graph_in(params)->fail(at, "with_master_weights", gspmd::detail::mistake::other,
                                              gspmd::detail::text("there are ")
                                                  << static_cast<std::int64_t>(before.size()) << " parameters and "
                                                  << static_cast<std::int64_t>(after.size())
                                                  << " floats for them; pass the state that init made from these parameters");
        return next;
      }
      for (std::size_t k = 0; k < before.size(); ++k) {
        value& p = *before[k];
        const value now = *after[k];
        if (!p.is_valid() || !now.is_valid()) continue;
        if (!gspmd::detail::is_floating(p.type()) || !(p.shape() == now.shape())) {
          p.graph()->fail(at, "with_master_weights", gspmd::detail::mistake::extent,
                          gspmd::detail::text("parameter ")
                              << static_cast<std::int64_t>(k) << " is " << gspmd::detail::name_of(p.type())
                              << gspmd::detail::shape_text(p.shape()) << " and its float is "
                              << gspmd::detail::name_of(now.type()) << gspmd::detail::shape_text(now.shape())
                              << "; give the state that init made of these parameters");
          return next;
        }
        const value rounded = gspmd::detail::quantity(now, at).as(p.type()).tensor();
        p = gspmd::detail::keep_place(rounded, p, at);
      }
    }
    return next;
  }
};

}  // namespace optimizer
}  // namespace gspmd
