// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/typed/manual_regions.hpp"
#include "gspmd/modes/local.hpp"
#include "gspmd/modes/tensor.hpp"
#include "gspmd/tree.hpp"

/// The manual mode: a part of a program that says what one device does. See examples/modes.
namespace gspmd {

/// Several parts of what devices hold of one argument or result of a manual region: `held<split<_, "model">, replica<"data">>`.
template <class... Parts>
struct held {};
/// How a manual region takes its arguments: for each one `split`, `replica`, `invariant`, `partial`, or several of them as `held`. What is
/// not named is invariant.
template <class... Specs>
struct takes {};
/// How the results of a manual region leave it, likewise.
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

/// The border of a manual region, while a program is traced.
struct manual_border {
  graph& g;
  axis_mask axes;
  location at;

  /// Returns the layout of a value at the border, on the axes of the region; `number` is that of the value among the arguments or results.
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
  /// Returns the layout of an argument for which nothing is written, as the types of the program have it.
  [[nodiscard]] constexpr sharding as_it_is(value x) const {
    if (g.find_types == nullptr) return {};
    value_type t = types_up_to_here(g).types[static_cast<std::size_t>(x.id())];
    for (int a = 0; a < max_axes; ++a)
      if ((axes & axis_bit(a)) == 0) t.set(a, {state::invariant});
    return t.layout;
  }
  constexpr value enter(value x, const sharding& s) const {
    if (!x.is_valid() || g.failed()) return x;
    if (g.find_types == nullptr && s.partial != 0) {
      g.fail(at, "manual", mistake::states,
             "in_spec_mismatch: a partial sum comes from a program of tensors only (the explicit mode); take the argument as "
             "invariant");
      return made(-1, x);
    }
    // An argument that other axes split keeps that: only what the region names is asked for.
    sharding argument = s;
    if (g.find_types != nullptr) {
      const value_type t = types_up_to_here(g).types[static_cast<std::size_t>(x.id())];
      argument.splits.clear();
      for (int d = 0; d < x.rank(); ++d) {
        for (const auto& use : s.splits)
          if (use.dim == d) argument.splits.push_back(use);
        for (const auto& use : t.layout.splits)
          if (use.dim == d && (axes & axis_bit(use.axis)) == 0) argument.splits.push_back(use);
      }
      if (t.layout.splits.count == argument.splits.count && (t.layout.split_axes() & axes) == s.split_axes()) {
        bool is_same = true;  // in another order it is for the types to say
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
      g.fail(at, "manual", mistake::states, "a result of the region is no value of it; return what operators in it give");
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
    static_assert(is_tree_of<result_type, value>(), "gspmd: manual: a region returns values: one, or a tuple or struct of them");
    graph* const found = graph_of(args...);
    if (found == nullptr) return body(args...);
    graph& g = *found;
    const manual_border edge{g, axes_of(g), at};
    g.type_local = manual_pass();
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
      if (g.find_types != nullptr && (g.mesh->automatic_axes & found) != 0)
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

/// A part of a program in the local view (JAX's shard_map): `body` says what one device does. In it shapes are those of shards along
/// `Axes`, values are in a state along each of them (examples/modes/README.md), and what is sent is what namespace `local` writes. It is
/// called with values of the program and returns others.
///
/// Arguments come as `takes` says; nothing is sent for one that lies so. A dim that `Axes` split must have equal parts. In a program whose
/// inputs are `tensor`s an argument must have these states, and without `takes` it comes as it is; axes that are not named go on as they
/// are. In any other program arguments are brought to what `takes` says as by `annotate`, what is not named is invariant, and axes that are
/// not the region's are the planner's in it as outside of it: completion passes their splits over its border, `reshard` and `annotate` name
/// them in it, and what is sent along them is found (GSPMD 3.4, manual subgroups). What they split of a dim that the region's axes split
/// too they split evenly; another split is refused unless the region stands in allow_replication. Results leave as `gives` says, which must
/// be the states that they have: what varies is part k of the dim that `split` names, a partial sum leaves as `partial`.
///
/// Gradients go through it, inside and from outside. Errors, at compile time: a collective from another state than the value has, an
/// operator on states that do not go together (a weight that is invariant with data that varies: its gradient would miss a sum), a result
/// that varies and names no dim, a collective where devices may go different ways, values of the outside that are used inside.
///
///     auto y = manual<"data", "model">(
///         [](auto x, auto w1, auto w2) {                                    // x [b/2,d], w1 [d,f/4], w2 [f/4,d]
///           auto h = relu(einsum<"bd,df->bf">(x, w1));
///           return local::all_reduce<"model">(einsum<"bf,fd->bd">(h, w2));
///         },
///         takes<held<split<"data", _>, replica<"model">>, held<split<_, "model">, replica<"data">>, held<split<"model", _>, replica<"data">>>{},
///         gives<split<"data", _>>{})(x, w1, w2);
template <dim_spec... Axes, class F, class... Takes, class... Gives>
constexpr auto manual(F body, takes<Takes...> = {}, gives<Gives...> = {}, location at = location::current()) {
  return detail::manual_region<F, takes<Takes...>, gives<Gives...>, Axes...>{body, at};
}

}  // namespace gspmd
