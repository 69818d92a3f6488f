// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/typed/manual_regions.hpp"
#include "gspmd/modes/local.hpp"
#include "gspmd/modes/tensor.hpp"
#include "gspmd/program/tree.hpp"

/// The manual mode: you write one device's work for a part of a program. See examples/modes.
namespace gspmd {

/// Combines several states for an argument or a result of a manual region: `held<split<_, "model">, replica<"data">>`.
template <class... Parts>
struct held {};
/// The states of the arguments of a manual region: for each argument `split`, `replica`, `invariant`, `partial`, or
/// several states in `held`. All other axes are invariant.
template <class... Specs>
struct takes {};
/// The states of the results of a manual region, in the form of `takes`.
template <class... Specs>
struct gives {};

namespace detail {

template <class Spec>
struct border_parts {
  static constexpr placed_parts of(const mesh_info& mesh, int rank) { return parts_of_place<Spec>(mesh, rank); }
};
template <class... Parts>
struct border_parts<held<Parts...>> {
  static constexpr placed_parts of([[maybe_unused]] const mesh_info& mesh, [[maybe_unused]] int rank) {
    if constexpr (sizeof...(Parts) == 0) return {};
    else return parts_of_place<Parts...>(mesh, rank);
  }
};

/// The boundary of a manual region, while a program is traced.
struct manual_border {
  graph& g;
  axis_mask axes;
  location at;

  /// Returns the layout of a value at the boundary, on the axes of the region. `number` is the index of the value among
  /// the arguments or results.
  template <class Spec>
  constexpr sharding spec(value x, int number, const char* what) const {
    const placed_parts parts = border_parts<Spec>::of(*g.mesh, x.rank());
    const axis_mask named = parts.layout.split_axes() | parts.layout.partial | parts.layout.replica | parts.invariant;
    if (!parts.problem.empty()) g.fail(at, "manual", parts.broken, text(what) << ' ' << number << ": " << parts.problem);
    else if (const axis_mask others = named & ~axes; others != 0)
      g.fail(at, "manual", mistake::states,
             text(*what == 'a' ? "in_spec_mismatch: " : "out_spec_mismatch: ")
                 << what << ' ' << number << " names `" << axes_text(*g.mesh, others) << "`, which the region leaves as it is");
    return parts.layout;
  }
  /// Returns the layout of an argument without a `takes` entry: the layout of its type, along the axes of the region.
  [[nodiscard]] constexpr sharding as_it_is(value x) const {
    if (!g.is_explicit) return {};
    value_type t = types_up_to_here(g).types[static_cast<std::size_t>(x.id())];
    for (int a = 0; a < max_axes; ++a)
      if ((axes & axis_bit(a)) == 0) t.set(a, {state::invariant});
    return t.layout;
  }
  constexpr value enter(value x, const sharding& s) const {
    if (!x.is_valid() || g.failed()) return x;
    if (!g.is_explicit && s.partial != 0) {
      g.fail(at, "manual", mistake::states,
             "in_spec_mismatch: only a program of tensors (the explicit mode) passes partial sums; take the argument as "
             "invariant");
      return made(-1, x);
    }
    // An argument keeps its splits along other axes. Only the axes of the region are requested.
    sharding argument = s;
    if (g.is_explicit) {
      const value_type t = types_up_to_here(g).types[static_cast<std::size_t>(x.id())];
      argument.splits.clear();
      for (int d = 0; d < x.rank(); ++d) {
        for (const auto& use : s.splits)
          if (use.dim == d) argument.splits.push_back(use);
        for (const auto& use : t.layout.splits)
          if (use.dim == d && (axes & axis_bit(use.axis)) == 0) argument.splits.push_back(use);
      }
      if (t.layout.splits.count == argument.splits.count && (t.layout.split_axes() & axes) == s.split_axes()) {
        bool is_same = true;  // in another order the types decide
        for (const auto& use : argument.splits) is_same = is_same && t.on(use.axis) == shard_of(use.dim);
        if (is_same) argument.splits = t.layout.splits;
      }
    }
    const int id = add_enter(g, add_argument(g, x.id(), axes, argument, at), axes, s, at);
    if (id >= 0) return {&g, id};
    const local_scope inside(g, g.open_local | axes);
    return made(id, x);
  }
  constexpr value leave(value x, const sharding& s) const {
    if (!x.is_valid() || g.failed()) return x;
    if (x.graph() != &g || x.node().local_axes != (g.open_local | axes)) {
      g.fail(at, "manual", mistake::states, "a result is no value of the region; return results of operators in the region");
      return x;
    }
    return made(g, add_leave(g, x.id(), axes, s, at), x.type(), x.shape());
  }
};

template <class List, std::size_t K>
struct spec_at {
  using type = held<>;
};
template <template <class...> class List, class... Specs, std::size_t K>
  requires(K < sizeof...(Specs))
struct spec_at<List<Specs...>, K> {
  using type = std::tuple_element_t<K, std::tuple<Specs...>>;
};

template <class F, class Takes, class Gives, dim_spec... Axes>
struct manual_region {
  F body;
  location at;

  template <class... Args>
  constexpr auto operator()(Args... args) const {
    static_assert((is_tree_of<Args, value>() && ...) && sizeof...(Args) > 0,
                  "gspmd: manual: a region is called with values of the program, or tuples and structs of them");
    using result_type = std::invoke_result_t<const F&, Args...>;
    static_assert(is_tree_of<result_type, value>(), "gspmd: manual: a region returns a value, or a tuple or struct of values");
    graph* const found = graph_of(args...);
    if (found == nullptr) return body(args...);
    graph& g = *found;
    const manual_border edge{g, axes_of(g), at};
    allow_manual_regions(g);
    take(edge, std::make_index_sequence<(leaf_count<Args>() + ...)>{}, args...);
    result_type result = [&] {
      const local_scope inside(g, g.open_local | edge.axes);
      return body(args...);
    }();
    give(edge, std::make_index_sequence<leaf_count<result_type>()>{}, result);
    return result;
  }

 private:
  constexpr axis_mask axes_of(graph& g) const {
    axis_mask axes = 0;
    const auto add = [&](std::string_view name) {
      const axis_mask found = g.mesh->mask_of(name);
      if (found == 0)
        g.fail(at, "manual", mistake::unknown_axis,
               text("`") << name << "` is not an axis of the mesh; its axes are " << names_text(*g.mesh));
      if (g.is_explicit && (g.mesh->automatic_axes & found) != 0)
        g.fail(at, "manual", mistake::states,
               text("axis_mode: `") << name << "` is automatic, and a region takes explicit axes; name it in explicit_axes too");
      if ((axes & found) != 0 || (g.open_local & found) != 0)
        g.fail(at, "manual", mistake::states, text("axis_used_twice: `") << name << "` is local already");
      axes |= found;
    };
    (add(Axes.view()), ...);
    return axes;
  }
  template <std::size_t... K, class... Args>
  constexpr void take(const manual_border& edge, std::index_sequence<K...>, Args&... args) const {
    constant_vector<value*> leaves;
    (for_each_leaf(args, [&](value& v) { leaves.push_back(&v); }), ...);
    constexpr std::size_t written = count_of(static_cast<Takes*>(nullptr));
    if (written != 0 && written != sizeof...(K))
      edge.g.fail(at, "manual", mistake::states,
                  text("in_spec_mismatch: ") << static_cast<std::int64_t>(sizeof...(K))
                                             << " arguments are given, and `takes` names " << static_cast<std::int64_t>(written));
    ((*leaves[K] = edge.enter(
          *leaves[K], written == 0 ? edge.as_it_is(*leaves[K])
                                   : edge.spec<typename spec_at<Takes, K>::type>(*leaves[K], static_cast<int>(K), "argument"))),
     ...);
  }
  template <std::size_t... K, class Result>
  constexpr void give(const manual_border& edge, std::index_sequence<K...>, Result& result) const {
    constant_vector<value*> leaves;
    for_each_leaf(result, [&](value& v) { leaves.push_back(&v); });
    constexpr std::size_t written = count_of(static_cast<Gives*>(nullptr));
    if (written != 0 && written != sizeof...(K))
      edge.g.fail(at, "manual", mistake::states,
                  text("out_spec_mismatch: ")
                      << static_cast<std::int64_t>(sizeof...(K)) << " results are returned, and `gives` names "
                      << static_cast<std::int64_t>(written));
    ((*leaves[K] =
          edge.leave(*leaves[K], edge.spec<typename spec_at<Gives, K>::type>(*leaves[K], static_cast<int>(K), "result"))),
     ...);
  }
  template <template <class...> class List, class... Specs>
  static constexpr std::size_t count_of(const List<Specs...>*) {
    return sizeof...(Specs);
  }
};

}  // namespace detail

/// Returns a callable that runs `body` in the local view, like JAX's shard_map. In `body` you write one device's
/// work.
///
/// In `body`, shapes are those of shards along `Axes`, and values have a state along each of `Axes`
/// (examples/modes/README.md). Call the result with values of the program; it returns values.
///
/// `takes` lists the states of the arguments. Region axes that an entry does not name are invariant.
/// Dims that `Axes` split must have equal parts. If the inputs of the program are `tensor`s, the arguments must have
/// these states. Without `takes` they keep their states. The states along all other axes do not change. In any other
/// program the arguments are resharded to `takes`, as `annotate` does; without `takes`
/// they are invariant.
///
/// `gives` states the states of the results. A result must have this state already. A varying result
/// leaves as part k of the dim that `split` names; a partial sum leaves as `partial`.
///
/// In a program without `tensor`s, the planner shards values along other axes inside the region as it does outside
/// (manual subgroups). Completion propagates these splits through the boundary, and `reshard`
/// and `annotate` can name them. If such an axis splits a dim that `Axes` split too, the split must be even. Another
/// split is refused, unless the region is in allow_replication.
///
/// **Communication.** Inside, only the collectives of namespace `local`, and those of the planner along other axes. An
/// argument that has its `takes` state already sends nothing. Gradients pass through the region.
/// **Errors.** Compile errors: a collective from a state that the value does not have; an operator on states that do
/// not combine (an invariant weight with varying data: its gradient would lack a sum). Also a varying result without a
/// dim, a collective in a branch that some devices may not take, and outside values in `body`.
/// **Example.**
///
///     auto y = manual<"data", "model">(
///         [](auto x, auto w1, auto w2) {                                    // x [b/2,d], w1 [d,f/4], w2 [f/4,d]
///           auto h = relu(einsum<"bd,df->bf">(x, w1));
///           return local::all_reduce<"model">(einsum<"bf,fd->bd">(h, w2));
///         },
///         takes<held<split<"data", _>, replica<"model">>, held<split<_, "model">, replica<"data">>,
///               held<split<"model", _>, replica<"data">>>{},
///         gives<split<"data", _>>{})(x, w1, w2);
///
/// **Source.** GSPMD, section 3.4.
template <dim_spec... Axes, class F, class... Takes, class... Gives>
constexpr auto manual(F body, takes<Takes...> = {}, gives<Gives...> = {}, location at = location::current()) {
  return detail::manual_region<F, takes<Takes...>, gives<Gives...>, Axes...>{body, at};
}

}  // namespace gspmd
