// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/external/detail/ghosted_leaves.hpp"
#include "gspmd/external/detail/given_plan.hpp"
#include "gspmd/external/detail/given_rows.hpp"
#include "gspmd/external/detail/read_ends.hpp"
#include "gspmd/run/compile.hpp"

namespace gspmd {

namespace detail {

/// The listed layers of the inputs and outputs of a step.
template <class Step, class... Ghosts>
struct listed_layers {
  static_assert(sizeof...(Ghosts) <= Step::input_count + Step::output_count,
                "gspmd: ghosted_step: more ghosts<> are listed than the step has inputs and outputs");
  static constexpr std::array<given_layers, sizeof...(Ghosts)> layers{Ghosts::given...};
  static constexpr bool fits = [] {
    for (std::size_t k = 0; k < layers.size(); ++k) {
      const int value = k < Step::input_count ? Step::view.inputs[k] : Step::view.outputs[k - Step::input_count];
      if (layers[k].is_given && layers[k].low.count != Step::view.value(value).global.count) return false;
    }
    return true;
  }();
  static_assert(fits, "gspmd: ghosted_step: ghosts<> has a width, or layers{low, high}, for each dim of its input or output");
};

template <class Step>
struct passes_of_step;
template <constant_callable Callable, class Mesh, class... Inputs>
struct passes_of_step<compile<Callable, Mesh, Inputs...>> {
  using type = typename static_plan<callable_argument<Callable>(), Mesh, Inputs...>::passes;
};

/// The indices that the program of a step reads beyond the ends of its inputs.
template <class Step>
inline constexpr auto ends_of_step = [] {
  std::array<input_ends, Step::input_count> all{};
  find_read_ends(passes_of_step<Step>::type::program(), all.data(), all.size());
  return all;
}();
/// States for each input whether its layers can be filled for the plan of a program.
template <class Program, class Step>
inline constexpr auto fillable_inputs = [] {
  std::array<fillable, Step::input_count> all{};
  for (std::size_t k = 0; k < all.size(); ++k) all[k] = fillable_input(Program::view, ends_of_step<Step>[k], k);
  return all;
}();

}  // namespace detail

/// A compiled step that reads its inputs from blocks with ghost layers in external memory, and writes its results into
/// such blocks. It needs no halo and no copy of its own.
///
/// `Ghosts` are the layers of the inputs, then of the outputs. Leaves without layers, or with ghosts<>, are shards as
/// in a strided_step.
///
/// A view has the elements of the device, without padding, and the layers around them. Its last dim is dense; the other
/// strides are arbitrary. The layers of an input must contain all elements that the program reads: the elements of
/// other devices and, beyond the ends of the tensor, the program's boundary. If you keep other boundary values in the
/// layers, the step reads these instead of the program's boundary. `exchange_ghosts` brings the elements of the
/// neighbours, including corners, in one exchange, and writes the boundary. Layers of results stay unchanged.
///
/// An input is used in place if it is read by elementwise operators, reductions of their results, and stencils and
/// shifts within its layers. A result is in place if an elementwise operator computes it. Other results are copied:
/// copied_bytes(). The plan is recomputed from the pass that fuses operators into loops.
///
/// **Communication.** Collective. `traffic` for the step, and bytes_exchanged(device) for `exchange_ghosts`.
/// **Errors.** Throws gspmd::error: a view of another shape, or with a last dim that is not dense; results that overlap
/// inputs or each other; filled layers that overlap another input, unless both are the same block and filled with the
/// same boundary; several devices in one communicator; the errors of the step. Compile error: an input with ghosts<>
/// that is read in another way, or beyond its layers; `exchange_ghosts` if two operators use different boundaries at an
/// end.
/// **Threads.** Like the step.
/// **Example.**
///
///     using step = compile<heat, mesh<axis<"x", 2>>, input<double, shape<100, 64>, split<"x", _>>>;
///     ghosted_step<step, ghosts<1, 1>, ghosts<1, 1>> s;
///     // u's layers are valid: nothing is sent
///     s(comm, strided_view(u, {52, 66}), strided_view(next, {52, 66}));
///     s(comm, exchange_ghosts(strided_view(u, {52, 66})), strided_view(next, {52, 66}));  // the step fills them first
template <class Step, class... Ghosts>
class ghosted_step {
  using listed = detail::listed_layers<Step, Ghosts...>;
  static_assert(listed::fits || true);
  using program = typename detail::given_plan<typename detail::passes_of_step<Step>::type, listed>::type;
  static_assert(!program::view.is_checked,
                "gspmd: ghosted_step: a checked mesh compares dense shards; give the step itself to it");
  static constexpr auto& can_fill = detail::fillable_inputs<program, Step>;
  static constexpr auto& ends = detail::ends_of_step<Step>;
  static constexpr detail::ghosted_facts facts{&program::view,
                                               {listed::layers.data(), listed::layers.size()},
                                               {program::given::layers.data(), program::given::layers.size()},
                                               {ends.data(), ends.size()},
                                               {can_fill.data(), can_fill.size()}};

 public:
  static constexpr const detail::plan_view& view = program::view;
  /// The traffic of a device in a call, without the traffic of `exchange_ghosts`.
  static constexpr gspmd::traffic traffic{program::view, program::mesh::info};

  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    static_assert((detail::accept_views<std::remove_cvref_t<Shards>>() && ...));
    static_assert(detail::call_arguments<Step, "ghosted_step", 0, Step::input_count + Step::output_count,
                                         std::remove_cvref_t<Shards>...>::accept());
    const auto used = bound_.take();
    if (comm.local_count() != 1) detail::throw_several_devices(static_cast<std::size_t>(comm.local_count()));
    require_devices(comm, Step::device_count);
    leaves_.begin("ghosted_step", facts, program::mesh::info, comm.device(0), check_array);
    [&]<std::size_t... K>(std::index_sequence<K...>) {
      (take<detail::leaves_before<std::tuple<std::remove_cvref_t<Shards>...>, K>()>(shards), ...);
    }(std::index_sequence_for<Shards...>{});
    leaves_.finish(comm);
    bound_.bind(comm, view);
    auto& device = bound_.devices[0];
    device.inputs = leaves_.inputs();
    device.outputs = leaves_.outputs();
    const detail::given_rows rows{leaves_.strides(), &detail::placed_later, detail::place_given_rows};
    device.given = &rows;
    detail::run_static<program>(comm, bound_.devices.data(), bound_.from.data(), bound_.to.data());
    leaves_.put_back();
  }
  /// Returns the bytes that the last call copied for shards that are not in place, in and out.
  [[nodiscard]] std::int64_t copied_bytes() const { return leaves_.copied_bytes(); }
  /// Returns true if input or output `k` (inputs first) is used in place.
  static constexpr bool is_in_place(std::size_t k) { return facts.is_in_place(k); }
  /// Returns the bytes that a device sends to fill the layers of input `k`.
  [[nodiscard]] static std::int64_t bytes_exchanged(std::size_t k, int device) {
    return detail::ghost_filler::exchange_of(facts, k).bytes_sent(device, facts.elem_bytes(k));
  }

 private:
  static void check_array(const detail::plan_view& plan, const detail::mesh_info& mesh, std::size_t leaf, int count,
                          const detail::planned_value& has, const detail::mesh_shape& on) {
    detail::check_shards(plan, mesh, leaf, 1, count, has, on);
  }
  /// Adds the leaves of an argument. The first is leaf `K`.
  template <std::size_t K, class Given>
  void take(Given& given) {
    if constexpr (detail::fills_ghost_cells<std::remove_cv_t<Given>>) {
      static_assert(K < Step::input_count && K < sizeof...(Ghosts),
                    "gspmd: ghosted_step: exchange_ghosts() is for inputs with ghosts<>");
      if constexpr (K < Step::input_count) {
        static_assert(can_fill[K] != detail::fillable::ends_differ,
                      "gspmd: ghosted_step: operators of the program go on differently beyond one end of a dim, so that no layer "
                      "can hold what all read there; fill the layers yourself, or use one boundary");
        static_assert(can_fill[K] != detail::fillable::not_known,
                      "gspmd: ghosted_step: an operator between the input and its shift hides the elements that are read beyond "
                      "the ends of the tensor; fill the layers yourself, or shift the input itself");
      }
    }
    detail::for_each_leaf(given, [this](auto& leaf) { leaves_.add(leaf); });
  }

  detail::bound_devices bound_;
  detail::ghosted_leaves leaves_;
};

}  // namespace gspmd
