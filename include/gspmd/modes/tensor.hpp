// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <utility>

#include "gspmd/detail/ops/set_policy.hpp"
#include "gspmd/detail/passes/typed/find_types.hpp"
#include "gspmd/ops/einsum.hpp"
#include "gspmd/ops/shape.hpp"
#include "gspmd/ops/traced_body.hpp"
#include "gspmd/run/compile.hpp"

/// The explicit mode: the sharding of a tensor is a part of its type, and programs send only the communication that you
/// write. See examples/modes.
namespace gspmd {

/// The devices along these axes hold equal data, and each device has a partial value of the gradient. Example: a weight
/// along the axis that splits the batch. Use it in a `tensor` and in `reshard`.
template <dim_spec Axes>
struct replica {
  static constexpr std::string_view axes = Axes.view();
};
/// The devices along these axes hold equal data and use it in the same way, so each device has the whole gradient. It
/// is the default for axes that a type does not name.
template <dim_spec Axes>
struct invariant {
  static constexpr std::string_view axes = Axes.view();
};

/// The layout of a tensor on a mesh: the axes that split its dims, and the axes along which it is a replica or partial.
/// Along all other axes it is invariant.
///
/// **Example.**
///
///     place<pod, split<"data", _>, replica<"model">>
template <class Mesh, class... Parts>
struct place {
  using mesh = Mesh;
};

/// A tensor with its place, as the type of an input or of a result of a program.
///
/// A program with such inputs is in the explicit mode. The type of each value follows from the types of its operands,
/// also in the gradient.
///
/// **Communication.** The program sends only the communication that you write: `reshard`, `out`, `with_exchange`, and
/// the collectives of manual regions.
/// **Errors.** If an operator needs communication that is not written, a compile error names the code to write.
/// **Example.**
///
///     using x = tensor<float, shape<64, 512>, place<pod, split<"data", _>, replica<"model">>>;
///     using w = tensor<float, shape<512, 256>, place<pod, split<_, "model">, replica<"data">>>;
///     using y = typed_result<linear, pod, x, w>;  // tensor<float, shape<64, 256>, place<pod, split<"data", "model">>>
///     using step = compile<linear, pod, x, w>;
template <class T, class Dims, class Place>
struct tensor;

namespace detail {

/// Combines the parts of a place into one layout. Keeps the first mistake.
struct placed_parts {
  sharding layout;
  axis_mask invariant = 0;
  bool has_splits = false;
  text problem;
  mistake broken = mistake::other;

  template <dim_spec... Dims>
  constexpr void add(const mesh_info& mesh, int rank, std::type_identity<split<Dims...>>) {
    keep(detail::resolve(mesh, split<Dims...>::specs(), split<Dims...>::rank, rank));
    has_splits = true;
  }
  template <fixed_string Axes, monoid Kind>
  constexpr void add(const mesh_info& mesh, int, std::type_identity<partial<Axes, Kind>>) {
    if (problem.empty() && layout.partial != 0 && layout.reduced_by != Kind) {
      problem << "a place is partial by one function; this one is by " << name_of(layout.reduced_by) << " and by "
              << name_of(Kind);
      broken = mistake::states;
    }
    layout.partial |= named(mesh, partial<Axes, Kind>::axes);
    layout.reduced_by = Kind;
  }
  template <dim_spec Axes>
  constexpr void add(const mesh_info& mesh, int, std::type_identity<gspmd::replica<Axes>>) {
    layout.replica |= named(mesh, Axes.view());
  }
  template <dim_spec Axes>
  constexpr void add(const mesh_info& mesh, int, std::type_identity<gspmd::invariant<Axes>>) {
    invariant |= named(mesh, Axes.view());
  }

 private:
  constexpr void keep(const resolved_sharding& r) {
    if (problem.empty()) {
      problem = r.problem;
      broken = r.broken;
    }
    layout.splits = r.value.layout.splits;
  }
  constexpr axis_mask named(const mesh_info& mesh, std::string_view axes) {
    const auto r = detail::resolve(mesh, static_cast<const dim_spec*>(nullptr), 0, 0, axes, monoid::add);
    if (problem.empty()) {
      problem = r.problem;
      broken = r.broken;
    }
    const axis_mask found = r.value.layout.partial;
    if (problem.empty() && ((layout.split_axes() | layout.partial | layout.replica | invariant) & found) != 0) {
      problem << "an axis of `" << axes << "` has another part in this place already";
      broken = mistake::axis_used_twice;
    }
    return found;
  }
};
template <class... Parts>
constexpr placed_parts parts_of_place(const mesh_info& mesh, [[maybe_unused]] int rank) {
  placed_parts parts;
  (parts.add(mesh, rank, std::type_identity<Parts>{}), ...);
  return parts;
}

}  // namespace detail

template <class T, class Dims, class Mesh, class... Parts>
struct tensor<T, Dims, place<Mesh, Parts...>> {
  using element = T;
  using shape = Dims;
  static constexpr int leaves = 1;
  static_assert(detail::is_checked_element<T>() || true);

  /// Adds the input to the program that is being traced.
  static constexpr value trace(detail::graph& g, int number) {
    const int id = detail::add_parameter(g, detail::dtype_of<T>(), Dims::value, location::input(number));
    auto& n = g.nodes[static_cast<std::size_t>(id)];
    if constexpr (!detail::is_element<T>) g.fail(n.at, "input", detail::mistake::reported, "see the error at the type");
    if (!detail::same_mesh(Mesh::info, *g.mesh))
      g.fail(n.at, "input", detail::mistake::states,
             detail::text("mesh_mismatch: the tensor is on ")
                 << detail::named_sizes_text(Mesh::info) << ", and the program is for " << detail::named_sizes_text(*g.mesh));
    const auto parts = detail::parts_of_place<Parts...>(*g.mesh, Dims::rank);
    if (!parts.problem.empty()) g.fail(n.at, "input", parts.broken, parts.problem);
    n.annotated = true;
    n.annotation = parts.layout;
    if (detail::has_typed_axes(*g.mesh)) {
      detail::make_explicit(g);
    } else {
      if (const auto what = detail::automatic_mistake(*g.mesh, n.shape, parts.layout); !what.empty())
        g.fail(n.at, "input", detail::mistake::states, what);
      n.annotated = !parts.layout.splits.empty();
    }
    return {&g, id};
  }
};

namespace detail {

/// Adds `parts` to `x` as an annotation. Used on a mesh without explicit axes, where values have no types.
constexpr value annotated_only(value x, const placed_parts& parts, const char* who, location at) {
  auto& g = *x.graph();
  sharding s = parts.layout;
  s.partial |= parts.invariant;
  if (const text what = automatic_mistake(*g.mesh, x.node().shape, s); !what.empty())
    return made(g.fail(at, who, mistake::states, what), x);
  return s.splits.empty() ? x : value{&g, add_reshard(g, x.id(), parts.layout, at)};
}

/// Returns `x` with the state that `Parts` name.
template <class... Parts>
constexpr value requested(value x, const char* who, bool is_out, location at) {
  if (!x.is_valid()) return {};
  auto& g = *x.graph();
  const auto parts = parts_of_place<Parts...>(*g.mesh, x.rank());
  if (!parts.problem.empty()) return made(g.fail(at, who, parts.broken, parts.problem), x);
  if (!g.is_explicit && !has_typed_axes(*g.mesh)) return annotated_only(x, parts, who, at);
  return {&g, add_requested_state(g, x.id(), {parts.layout, parts.invariant, parts.has_splits, is_out}, at)};
}

}  // namespace detail

/// Returns `x` with the layout that `Parts` name: a `split` for the dims; `replica`, `invariant` or `partial` for axes.
///
/// Axes that split `x` now and that the new `split` omits become invariant. All other axes keep their state.
///
/// **Communication.** The transitions from the old state to the new state, forward and backward. If the program exceeds
/// its budget, the error names them.
/// **Example.**
///
///     w = reshard<replica<"tp">>(w);      // invariant before: all_reduce of its gradient, nothing forward
///     y = reshard<split<"dp", "tp">>(y);  // partial over tp before: reduce_scatter
template <class... Parts>
  requires(sizeof...(Parts) > 0)
constexpr value reshard(value x, location at = location::current()) {
  return detail::requested<Parts...>(x, "reshard", false, at);
}

/// The state of an operator's result: like `reshard<Parts...>` of the result, with fewer transitions. A partial sum may
/// become another state (all_reduce, or reduce_scatter along a dim) or stay partial. Equal data may be split. Nothing
/// else changes.
///
/// **Example.**
///
///     auto y = einsum<"bf,fd->bd">(h, w, out<split<"data", "model">>{});  // partial over model before: reduce_scatter
template <class... Parts>
struct out {};

template <fixed_string Equation, class... Parts>
  requires(sizeof...(Parts) > 0)
constexpr value einsum(value a, value b, out<Parts...>, location at = location::current()) {
  return detail::requested<Parts...>(einsum<Equation>(a, b, at), "einsum", true, at);
}
template <fixed_string Equation, class... Parts>
  requires(sizeof...(Parts) > 0)
constexpr value einsum(value a, out<Parts...>, location at = location::current()) {
  return detail::requested<Parts...>(einsum<Equation>(a, at), "einsum", true, at);
}

namespace detail {

template <class F, class... Arguments>
constexpr auto exchanging(std::string_view axes, F f, const Arguments&... arguments) {
  static_assert(
      (is_values<Arguments> && ...),
      "gspmd: with_exchange: the arguments of the function are values, or tuples or structs of values; capture other arguments");
  graph* const g = graph_of(arguments...);
  const std::size_t before = g == nullptr ? 0 : g->nodes.size();
  auto result = f(arguments...);
  if (g == nullptr || axes.empty()) return result;
  const auto named = detail::resolve(*g->mesh, static_cast<const dim_spec*>(nullptr), 0, 0, axes, monoid::add);
  if (!named.problem.empty())
    g->fail(before < g->nodes.size() ? g->nodes[before].at : location{}, "with_exchange", named.broken, named.problem);
  else if (g->is_explicit) allow_exchange(*g, before, named.value.layout.partial);
  return result;
}

}  // namespace detail

/// Returns f(arguments...), and permits the operators in `f` to receive elements of other shards along `Axes`.
///
/// This applies to a stencil, shift, roll, slice, pad, reverse, concatenate or window along a dim that these axes
/// split. If several axes split the dim, name all these axes. The result has the split of the operand. The gradients of
/// these operators have the same permission, also if they are taken outside of `f`. In a program that is not in the
/// explicit mode, the call has no effect.
///
/// **Communication.** The same as in the automatic mode. A halo is exchanged once for all its users.
/// **Errors.** Compile errors: an unknown axis. If shards need elements over other axes, the error is the same as
/// without `with_exchange`.
/// **Example.**
///
///     auto next = with_exchange<"x">([](auto u) { return stencil<1>([](auto u) { return u(-1) + u(1); }, u); }, u);
template <dim_spec Axes, class F, class... Arguments>
constexpr auto with_exchange(F f, const Arguments&... arguments) {
  return detail::exchanging(Axes.view(), f, arguments...);
}

namespace detail {

/// The type of output `K` of a program, found without planning the program.
template <auto Callable, class Mesh, std::size_t K, class... Inputs>
struct typed_output {
  struct found {
    dtype type = dtype::f32;
    extents shape;
    sharding layout;
    inline_vec<char, 64> replica, partial;
  };
  static constexpr found value = [] {
    const graph g = trace_callable<Callable, Mesh, Inputs...>();
    found f;
    if (g.failed() || K >= g.outputs.size()) return f;
    const program_typer typer = typed_program(g);
    const auto i = static_cast<std::size_t>(g.outputs[K]);
    const value_type& t = typer.types[i];
    f.type = g.nodes[i].type;
    f.shape = g.nodes[i].shape;
    f.layout = t.layout;
    const text names = axes_text(Mesh::info, t.layout.replica);  // Clang 16 requires that it is destroyed in the evaluation
    for (const char c : names.view()) f.replica.push_back(c);
    const text terms = axes_text(Mesh::info, f.layout.partial);
    for (const char c : terms.view()) f.partial.push_back(c);
    return f;
  }();
  template <std::size_t... D>
  static auto splits(std::index_sequence<D...>) -> split<spec_of(Mesh::info, value.layout, static_cast<int>(D))...>;
  template <std::size_t... D>
  static auto extents(std::index_sequence<D...>) -> shape<value.shape[static_cast<int>(D)]...>;
  template <class... Parts>
  static auto with_replica(std::type_identity<gspmd::place<Mesh, Parts...>> p) {
    if constexpr (value.replica.count == 0) return p;
    else {
      constexpr dim_spec axes(std::string_view(value.replica.items, value.replica.count));
      return std::type_identity<gspmd::place<Mesh, Parts..., replica<axes>>>{};
    }
  }
  template <class... Parts>
  static auto with_partial(std::type_identity<gspmd::place<Mesh, Parts...>> p) {
    if constexpr (value.partial.count == 0) return p;
    else {
      constexpr fixed_string<value.partial.count + 1> axes(std::string_view(value.partial.items, value.partial.count));
      return std::type_identity<gspmd::place<Mesh, Parts..., partial<axes, value.layout.reduced_by>>>{};
    }
  }
  static auto make() {
    using sequence = std::make_index_sequence<static_cast<std::size_t>(value.shape.count)>;
    using place = decltype(with_partial(with_replica(std::type_identity<gspmd::place<Mesh, decltype(splits(sequence{}))>>{})));
    return std::type_identity<tensor<element_t<value.type>, decltype(extents(sequence{})), typename place::type>>{};
  }
  using type = typename decltype(make())::type;
};

}  // namespace detail

/// The `tensor` type of a program's only output, for inputs of these types. If the program has a mistake, there is no
/// error here; `compile` reports it.
template <detail::constant_callable Callable, class Mesh, class... Inputs>
using typed_result = typename detail::typed_output<detail::callable_argument<Callable>(), Mesh, 0, Inputs...>::type;
/// The same for output `K`.
template <std::size_t K, detail::constant_callable Callable, class Mesh, class... Inputs>
using typed_result_of = typename detail::typed_output<detail::callable_argument<Callable>(), Mesh, K, Inputs...>::type;

}  // namespace gspmd
