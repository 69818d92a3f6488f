// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "gspmd/external/detail/ghosted_leaves.hpp"
#include "gspmd/external/detail/given_plan.hpp"
#include "gspmd/external/detail/read_ends.hpp"
#include "gspmd/run/compile.hpp"

namespace gspmd {

namespace detail {

/// The listed layers of the inputs and outputs of a plan.
template <class Plan, class... Ghosts>
struct listed_layers {
  static constexpr std::size_t inputs = Plan::view.inputs.size(), leaves = inputs + Plan::view.outputs.size();
  static_assert(sizeof...(Ghosts) <= leaves, "gspmd: with_ghosts: more ghosts<> are listed than the step has inputs and outputs");
  static constexpr std::array<given_layers, sizeof...(Ghosts)> layers{Ghosts::given...};
  static constexpr bool fits = [] {
    for (std::size_t k = 0; k < layers.size() && k < leaves; ++k) {
      const int value = k < inputs ? Plan::view.inputs[k] : Plan::view.outputs[k - inputs];
      if (layers[k].is_given && layers[k].low.count != Plan::view.value(value).global.count) return false;
    }
    return true;
  }();
  static_assert(fits, "gspmd: with_ghosts: ghosts<> has a width, or layers{low, high}, for each dim of its input or output");
};

/// A mesh of a program that is planned for ghost layers.
template <class Mesh, class... Ghosts>
struct ghosted_mesh : Mesh {};
template <class Mesh, class... Ghosts>
struct changed_mesh<ghosted_mesh<Mesh, Ghosts...>> : std::type_identity<Mesh> {};
template <class Mesh, class... Ghosts>
inline constexpr bool accepts_meshes<ghosted_mesh<Mesh, Ghosts...>> = accepts_meshes<Mesh>;
template <auto Callable, class Mesh, class... Ghosts, class... Inputs>
inline constexpr bool is_constant_program<Callable, ghosted_mesh<Mesh, Ghosts...>, Inputs...> =
    is_constant_program<Callable, Mesh, Inputs...>;

/// The plan for ghost layers. The passes before the local program becomes steps are those of the plan without them.
template <class Plain, class... Ghosts>
struct ghosted_plan {
  using listed = listed_layers<Plain, Ghosts...>;
  static_assert(listed::fits || true);
  static_assert(!Plain::view.is_checked, "gspmd: with_ghosts: a checked mesh compares dense shards; give the step itself to it");
  using planned = typename given_plan<typename Plain::passes, listed>::type;
  using passes = typename planned::passes;
  static constexpr plan_view view = planned::view;
  /// The indices that the program reads beyond the ends of its inputs.
  static constexpr auto ends = [] {
    std::array<input_ends, listed::inputs> all{};
    find_read_ends(Plain::passes::program(), all.data(), all.size());
    return all;
  }();
  /// States for each input whether its layers can be filled.
  static constexpr auto can_fill = [] {
    std::array<fillable, listed::inputs> all{};
    for (std::size_t k = 0; k < all.size(); ++k) all[k] = fillable_input(planned::view, ends[k], k);
    return all;
  }();
  static constexpr ghosted_facts ghosts{&view,
                                        {listed::layers.data(), listed::layers.size()},
                                        {planned::given::layers.data(), planned::given::layers.size()},
                                        {ends.data(), ends.size()},
                                        {can_fill.data(), can_fill.size()}};
};
template <class Plain, class... Ghosts>
struct plan_with_ghosts : Plain {};
template <class Plain, class... Ghosts>
  requires(Plain::is_accepted)
struct plan_with_ghosts<Plain, Ghosts...> : Plain {
  using program = ghosted_plan<Plain, Ghosts...>;
  using passes = typename program::passes;
  static constexpr const plan_view& view = program::view;
  static constexpr const ghosted_facts& ghosts = program::ghosts;
};
template <auto Callable, class Mesh, class... Ghosts, class... Inputs>
struct static_plan<Callable, ghosted_mesh<Mesh, Ghosts...>, Inputs...>
    : plan_with_ghosts<static_plan<Callable, Mesh, Inputs...>, Ghosts...> {};

template <class Step>
struct plan_of_step;
template <constant_callable Callable, class Mesh, class... Inputs>
struct plan_of_step<compile<Callable, Mesh, Inputs...>> {
  using type = static_plan<callable_argument<Callable>(), Mesh, Inputs...>;
};
template <class Step, class... Ghosts>
struct step_with_ghosts;
template <constant_callable Callable, class Mesh, class... Inputs, class... Ghosts>
struct step_with_ghosts<compile<Callable, Mesh, Inputs...>, Ghosts...> {
  using type = compile<Callable, ghosted_mesh<Mesh, Ghosts...>, Inputs...>;
};
template <constant_callable Callable, class Mesh, options Options, class... Inputs, class... Ghosts>
struct step_with_ghosts<compile<Callable, Mesh, with<Options>, Inputs...>, Ghosts...> {
  using type = compile<Callable, ghosted_mesh<mesh_with<Mesh, Options>, Ghosts...>, Inputs...>;
};

}  // namespace detail

/// A step that reads its inputs from blocks with ghost layers in external memory, and writes its results into such
/// blocks. It needs no halo and no copy of its own. It is `Step` with another plan.
///
/// `Ghosts` are the layers of the inputs, then of the outputs. An argument with layers is a ghosted_view. Arguments
/// without layers, or with ghosts<>, are shards as for other steps: see external/shards.hpp.
///
/// A ghosted_view has the elements of the device, without padding, and the layers around them. Its last dim is dense;
/// the other strides are arbitrary. The layers of an input must contain all elements that the program reads: the
/// elements of other devices and, beyond the ends of the tensor, the program's boundary. If you keep other boundary
/// values in the layers, the step reads these instead of the program's boundary. `exchange_ghosts` brings the elements
/// of the neighbours, including corners, in one exchange, and writes the boundary. Layers of results stay unchanged.
///
/// An input is used in place if it is read by elementwise operators, reductions of their results, and stencils and
/// shifts within its layers. A result is in place if an elementwise operator computes it. Other results are copied:
/// copied_bytes(). The plan is recomputed from the pass that fuses operators into loops.
///
/// **Communication.** Collective. `traffic` for the step, and bytes_exchanged(k, device) for `exchange_ghosts`.
/// **Errors.** Throws gspmd::error: a view of another shape, or with a last dim that is not dense; results that overlap
/// inputs or each other; filled layers that overlap another input, unless both are the same block and filled with the
/// same boundary; several devices in one communicator; the errors of the step. Compile error: an input with ghosts<>
/// that is read in another way, or beyond its layers; `exchange_ghosts` if two operators use different boundaries at an
/// end; `run` with whole arrays.
/// **Threads.** Like the step.
/// **Example.**
///
///     using step = compile<heat, mesh<axis<"x", 2>>, input<double, shape<100, 64>, split<"x", _>>>;
///     with_ghosts<step, ghosts<1, 1>, ghosts<1, 1>> s;
///     const ghosted_view from(strided_view(u, {52, 66})), to(strided_view(next, {52, 66}));
///     s(comm, from, to);                   // the layers of `from` are valid: nothing is sent
///     s(comm, exchange_ghosts(from), to);  // the step fills them first
template <class Step, class... Ghosts>
class with_ghosts : public detail::step_with_ghosts<Step, Ghosts...>::type {
  using program = typename detail::plan_of_step<typename detail::step_with_ghosts<Step, Ghosts...>::type>::type;

 public:
  /// Returns true if input or output `k` (inputs first) is used in place.
  static constexpr bool is_in_place(std::size_t k) { return program::ghosts.is_in_place(k); }
  /// Returns the bytes that a device sends to fill the layers of input `k`.
  [[nodiscard]] static std::int64_t bytes_exchanged(std::size_t k, int device) {
    return detail::ghost_filler::exchange_of(program::ghosts, k).bytes_sent(device, program::ghosts.elem_bytes(k));
  }
};

}  // namespace gspmd
