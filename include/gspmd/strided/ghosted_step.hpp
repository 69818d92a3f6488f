// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/compile.hpp"
#include "gspmd/detail/driver/given_plan.hpp"
#include "gspmd/detail/passes/ghost/read_ends.hpp"
#include "gspmd/detail/run/given_rows.hpp"
#include "gspmd/detail/transport/exclusive_use.hpp"
#include "gspmd/strided/ghosted_leaves.hpp"

namespace gspmd {

namespace detail {

/// The layers of the inputs and outputs of a step, as far as they are listed.
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

/// The indices that the programs of a step read beyond the ends of its inputs.
template <class Step>
inline constexpr auto ends_of_step = [] {
  std::array<input_ends, Step::input_count> all{};
  find_read_ends(passes_of_step<Step>::type::program(), all.data(), all.size());
  return all;
}();
/// Which inputs can be filled for the plan of a program.
template <class Program, class Step>
inline constexpr auto fillable_inputs = [] {
  std::array<fillable, Step::input_count> all{};
  for (std::size_t k = 0; k < all.size(); ++k) all[k] = fillable_input(Program::view, ends_of_step<Step>[k], k);
  return all;
}();

}  // namespace detail

/// A compiled step that reads its inputs among ghost layers of the caller's, and writes its results into such blocks: without a halo of
/// its own and without a copy. `Ghosts` are the layers of the inputs, then of the outputs; those that are not listed, and ghosts<>, are
/// shards as a strided_step takes them.
///
///     using step = compile<heat, mesh<axis<"x", 2>>, in<double, dims<100, 64>, split<"x", _>>>;
///     ghosted_step<step, ghosts<1, 1>, ghosts<1, 1>> s;
///     s(comm, strided_view(u, {52, 66}), strided_view(next, {52, 66}));           // u's layers are valid: nothing is sent
///     s(comm, filled(strided_view(u, {52, 66})), strided_view(next, {52, 66}));   // the step fills them first
///
/// A view has what the device holds of the shard, no padding, and the layers around it, rows any distance apart; its last dim is dense. An input's
/// layers must reach as far as the program reads, and hold what it reads there: elements of other devices, and beyond the ends of the
/// tensor what the program's boundary says. What else lies there is read all the same: boundary values that you keep in the layers take the
/// place of the program's. `filled` has the neighbours' elements brought, corners too, in one exchange, and writes the boundary. Layers of results
/// stay as they are.
///
/// In place are inputs that elementwise operators, and reductions of what they compute, read, stencils and shifts by no more than the layers; and results
/// that elementwise operators make. Other results are copied: copied_bytes(). `traffic` is what the step sends besides what `filled` sends,
/// which is bytes_filled(device). Plans are made again from where operators become loops.
///
/// Threads: as the step. Throws gspmd::error: a view of another shape, or whose last dim is not dense; results over inputs or each other;
/// layers that are filled, over another input, unless both are one block and filled alike; several devices in one communicator; what the step throws. Errors, at compile time: an input with ghosts<> that is read in
/// another way, or farther; `filled` where two operators go on differently beyond one end. Collective.
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
  /// The traffic of a device in a call, but for `filled`.
  static constexpr gspmd::traffic traffic{program::view, program::mesh::info};

  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
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
  /// The bytes that the last call copied of shards that are not in place, in and out.
  [[nodiscard]] std::int64_t copied_bytes() const { return leaves_.copied_bytes(); }
  /// Whether input or output `k`, counted from the inputs on, is read or written where it is.
  static constexpr bool is_in_place(std::size_t k) { return facts.is_in_place(k); }
  /// The bytes that a device sends to fill the layers of input `k`.
  [[nodiscard]] static std::int64_t bytes_filled(std::size_t k, int device) {
    return detail::ghost_filler::exchange_of(facts, k).bytes_sent(device, facts.elem_bytes(k));
  }

 private:
  static void check_array(const detail::plan_view& plan, const detail::mesh_info& mesh, std::size_t leaf, int count,
                          const detail::planned_value& has, const detail::mesh_shape& on) {
    detail::check_shards(plan, mesh, leaf, 1, count, has, on);
  }
  /// The leaves of an argument, the first of which is leaf `K`.
  template <std::size_t K, class Given>
  void take(Given& given) {
    if constexpr (detail::is_filled_view<std::remove_cv_t<Given>>) {
      static_assert(K < Step::input_count && K < sizeof...(Ghosts), "gspmd: ghosted_step: filled() is for inputs with ghosts<>");
      if constexpr (K < Step::input_count) {
        static_assert(can_fill[K] != detail::fillable::ends_differ,
                      "gspmd: ghosted_step: operators of the program go on differently beyond one end of a dim, so that no layer "
                      "can hold what all read there; fill the layers yourself, or use one boundary");
        static_assert(can_fill[K] != detail::fillable::not_known,
                      "gspmd: ghosted_step: an operator between the input and a shift of it hides what is read beyond the ends "
                      "of the tensor; fill the layers yourself, or shift the input itself");
      }
    }
    detail::for_each_leaf(given, [this](auto& leaf) { leaves_.add(leaf); });
  }

  detail::bound_devices bound_;
  detail::ghosted_leaves leaves_;
};

}  // namespace gspmd
