// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/driver/edge_elements.hpp"
#include "gspmd/detail/driver/given_shard.hpp"
#include "gspmd/detail/driver/static_plan.hpp"
#include "gspmd/detail/edge/given_memory.hpp"
#include "gspmd/detail/ir/can_alias.hpp"
#include "gspmd/detail/run/bound_devices.hpp"
#include "gspmd/detail/run/static_rows.hpp"
#include "gspmd/detail/run/step_checks.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/plan/budget.hpp"
#include "gspmd/plan/options.hpp"
#include "gspmd/program/inputs.hpp"
#include "gspmd/program/mesh.hpp"
#include "gspmd/program/shard_view.hpp"
#include "gspmd/program/sharded_array.hpp"

namespace gspmd {

/// A program that is compiled for a mesh.
///
///     using step = compile<mlp, pod, input<float, shape<64, 512>, split<"data", _>>,
///                          input<float, shape<512, 2048>, split<_, "model">>>;
///     static_assert(step::collectives == collectives{all_reduce<"model">});
///
/// The compiler completes the shardings, partitions the program, chooses collectives and plans memory when the type is
/// used. All results of planning are constants.
///
/// `Callable` is a lambda or another callable on `value`s. It captures nothing, or constants by value. It returns a
/// value, a tuple, or a struct of values. Pass a number that is known only at run time as an input. An object of this
/// type owns the scratch memory of the devices that it runs on; see operator().
///
/// Options follow the mesh as one type: `compile<mlp, pod, with<options{.search = true}>, inputs...>`.
///
/// **Threads.** An object runs for one thread at a time, so each device of `threads` needs its own object. A second
/// concurrent call throws gspmd::error. Consecutive calls may come from different threads and may use different
/// communicators. All threads may use the constants and types.
template <detail::constant_callable Callable, class Mesh, class... Inputs>
class compile {
  // Checks the mesh, the inputs and the callable, in this order and before anything else. Errors then have a short
  // include and instantiation context.
  static_assert(Mesh::device_count >= 0 && (detail::accepts_meshes<Mesh> || true));
  static_assert(((Inputs::leaves >= 0) && ...) || true);
  static_assert(Callable.is_known,
                "gspmd: compile: the callable captures a run-time value; make that number an input, `input<float, shape<>>`, "
                "or give the callable to dynamic::compile; a constexpr number is captured by value or not at all");
  static constexpr auto callable = detail::callable_argument<Callable>();
  using call = detail::traced_call<callable, Inputs...>;
  static_assert(call::compiles || true);
  using checked = detail::checked_program<callable, Inputs...>;
  static_assert(checked::fits || true);
  static_assert(detail::is_constant_program<callable, Mesh, Inputs...> || true);
  using program = detail::static_plan<callable, Mesh, Inputs...>;
  using planned = typename program::mesh;
  static constexpr bool is_accepted() {
    if constexpr (!program::is_accepted && program::broken != detail::mistake::reported)
      detail::refuse<program::broken, typename program::refusal>();
    return program::is_accepted;
  }
  static_assert(is_accepted() || true);

  template <class Layout, std::size_t D>
  static constexpr dim_spec spec_of() {
    constexpr bool has_room = detail::has_spec(planned::info, Layout::value().layout, static_cast<int>(D));
    static_assert(has_room,
                  "gspmd: step: the axes that split a dim of this shard have more than 63 characters; name them shorter");
    if constexpr (has_room) return detail::spec_of(planned::info, Layout::value().layout, static_cast<int>(D));
    else return _;
  }
  template <class Layout, std::size_t... D>
  static auto split_type(std::index_sequence<D...>) -> split<spec_of<Layout, D>()...>;
  template <class Layout, std::size_t... D>
  static auto dims_type(std::index_sequence<D...>) -> shape<Layout::value().global[static_cast<int>(D)]...>;
  template <class Layout, class T>
  struct shard_type {
    using sequence = std::make_index_sequence<static_cast<std::size_t>(Layout::value().global.count)>;
    using type = gspmd::shard_view<T, planned, decltype(dims_type<Layout>(sequence{})), decltype(split_type<Layout>(sequence{}))>;
  };
  template <std::size_t K>
  struct input_layout {
    static constexpr const detail::planned_value& value() { return view.value(view.inputs[K]); }
  };
  template <std::size_t K>
  struct output_layout {
    static constexpr const detail::planned_value& value() { return view.value(view.outputs[K]); }
  };

 public:
  static constexpr const detail::plan_view& view = program::view;
  using mesh_type = planned;
  using callable_result = typename checked::result;
  /// False if the program has a mistake. The compiler has reported the mistake, and `run` then returns results of the
  /// same form as the results of the program. If `is_form_known` is false too, `run` returns a result that converts to
  /// any type.
  static constexpr bool accepted = program::is_accepted;
  static constexpr bool is_form_known = checked::returns;

  /// Return the planned program, and the mesh's request for the plan, so that report/explain_sharding.hpp can plan the
  /// program again.
  static detail::graph planned_graph() { return program::passes::program(); }
  static const detail::plan_request& request() { return program::passes::request(); }

  static constexpr int device_count = Mesh::device_count;
  static constexpr std::size_t input_count = view.inputs.size();
  static constexpr std::size_t output_count = view.outputs.size();

  /// The collectives in the order of the program that every device runs. A collective in a loop is listed once. The
  /// collectives of both bodies of a conditional are listed.
  static constexpr auto collectives = [] {
    if constexpr (accepted)
      return detail::list_collectives<detail::count_collectives(program::view)>(program::view, planned::info);
    else return detail::unknown_collectives{};
  }();
  /// The bytes, messages and collectives that one device sends in a run. `.over("data")` and
  /// `.in(collective_kind::all_reduce)` select a part of the traffic.
  static constexpr gspmd::traffic traffic{program::view, planned::info};
  /// The bytes of the inputs, the outputs and the arena on one device.
  static constexpr std::int64_t peak_bytes_per_device = detail::peak_bytes(program::view);
  /// The bytes that the `mpi` backend may allocate in addition, to pack messages whose data is not contiguous. Other
  /// backends allocate no such memory.
  static constexpr std::int64_t packing_bytes_per_device = detail::packing_bytes(program::view);
  /// The flops of the device that computes most. Padding counts as elements.
  ///  - einsum of two operands: 2 for each combination of local indices, 8 if the elements are complex
  ///  - reductions: 1 for each local element of the operand
  ///  - elementwise operators and `map`: 1 for each local element of the result
  ///  - other operators that compute, such as `fft` and `cholesky`: see their docstrings
  ///  - movements and collectives: 0
  /// Iterations of loops and bodies of conditionals count as in `traffic`.
  static constexpr std::int64_t flops_per_device = detail::total_flops(program::view);

  /// The element types of input and output `K`. If the elements are complex, the type is the one in the declaration of
  /// the inputs, for example std::complex<double>.
  template <std::size_t K>
  using input_element = typename detail::taken_element<detail::element_t<view.value(view.inputs[K]).type>,
                                                       detail::all_declared_elements<Inputs...>, K>::type;
  template <std::size_t K>
  using output_element = typename detail::given_element<detail::element_t<view.value(view.outputs[K]).type>,
                                                        detail::all_declared_elements<Inputs...>>::type;

  /// The view of a shard of input or output `K`. Each member of a record, struct, tuple or array has its own number.
  template <std::size_t K>
  using input_shard = typename shard_type<input_layout<K>, const input_element<K>>::type;
  template <std::size_t K>
  using output_shard = typename shard_type<output_layout<K>, output_element<K>>::type;

  /// The input that output `K` updates, for example the weight of a new weight. The output may be written into the
  /// memory of that input. -1 if the output updates no input.
  template <std::size_t K>
  static constexpr int shared_input = view.shared_inputs[K];

  /// True if output `Output` may be written into the memory of input `Input`: no step reads the input after the output
  /// is written. Each output may overwrite at most one such input. For example, all weights and moments of Adam may be
  /// updated in place.
  template <std::size_t Output, std::size_t Input>
  static constexpr bool can_alias = detail::can_alias(view, Output, Input);

  /// The number of the first input of argument `K`. An argument is an `input`, or a group of inputs.
  template <std::size_t K>
  static constexpr std::size_t first_input = [] {
    const int leaves_of[] = {Inputs::leaves..., 0};
    std::size_t first = 0;
    for (std::size_t k = 0; k < K; ++k) first += static_cast<std::size_t>(leaves_of[k]);
    return first;
  }();

  /// Runs the program on the devices of `comm`. Pass the shards of the inputs, then the shards of the outputs, one by
  /// one or in structs and tuples.
  ///
  /// A shard is a sharded_array. If `comm` holds one device, a shard can also be an input_shard or output_shard view. A
  /// pointer, span or vector is converted to a view. A shard can also be a view of external memory: see
  /// external/shards.hpp. The first call allocates memory, and so does a call with a communicator that differs from
  /// that of the previous call. Other calls allocate nothing.
  ///
  /// Outputs must not overlap inputs or other outputs. Exception: output `k` may be the memory of input `i` if
  /// `can_alias<k, i>`. The overlap is checked if the memory differs from that of the last two calls.
  ///
  /// **Communication.** Collective. See `collectives` and `traffic`.
  /// **Errors.** Throws gspmd::error in these cases:
  ///  - the number of devices or the size of a buffer is wrong
  ///  - a pointer is null, or an array is empty
  ///  - memory overlaps
  ///  - a sharded_array has another sharding
  ///  - the object is already running
  ///  - a device fails; the error states the rank and the operator
  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    using given = std::tuple<std::remove_cvref_t<Shards>...>;
    constexpr auto leaf_count = detail::leaf_count<given>();
    if constexpr (leaf_count == input_count + output_count) {
      const auto used = bound_.take();
      const auto count = static_cast<std::size_t>(comm.local_count());
      given_.resize(view, count);
      const auto put_all = [&](const auto& shard_of) {
        [&]<std::size_t... K>(std::index_sequence<K...>) {
          (put<detail::leaves_before<given, K>()>(count, shards, shard_of), ...);
        }(std::index_sequence_for<Shards...>{});
      };
      if constexpr (!detail::has_view<given>()) {
        put_all(nullptr);
        run_on(comm, given_.inputs.data(), given_.outputs.data());
      } else if constexpr (detail::accept_shard_views<Comm>()) {
        detail::call_with_views<Comm>::template run<program>(
            comm, view, detail::ghosts_of<program>(), bound_, given_, put_all, [&] { start(comm); }, shards...);
      }
    } else if constexpr (accepted) {
      detail::refuse<detail::mistake::shard, detail::wrong_shard_count<leaf_count, input_count, output_count>>();
    }
  }

  /// Returns the bytes that the last call with views copied, in and out, because a view was not dense or had no
  /// padding.
  [[nodiscard]] std::int64_t copied_bytes() const { return given_.copied_bytes(); }
  /// Returns the bytes that this device sent in the last call with views for views with a layout of their own.
  [[nodiscard]] std::int64_t bytes_sent() const { return given_.bytes_sent(); }

  /// Runs the program on a communicator that may hold several devices. `inputs[d * input_count + k]` is input `k` of
  /// the d-th device that `comm` holds. `outputs[d * output_count + k]` is output `k`.
  template <communicator Comm>
  void run(Comm& comm, const void* const* inputs, void* const* outputs) {
    const auto used = bound_.take();
    run_on(comm, inputs, outputs);
  }

 private:
  template <class Comm>
  void run_on(Comm& comm, const void* const* inputs, void* const* outputs) {
    static_assert(std::is_null_pointer_v<decltype(detail::ghosts_of<program>())>,
                  "gspmd: step: the program is planned for ghost layers; call the step with a ghosted_view for each input and "
                  "result that has layers");
    bound_.bind(comm, view, inputs, outputs);
    start(comm);
  }
  template <class Comm>
  void start(Comm& comm) {
    detail::run_static<program>(comm, bound_.devices.data(), bound_.from.data(), bound_.to.data());
  }
  template <std::size_t K, class Wanted, class Reference>
  static auto shard_data(Reference& given) {
    using Given = std::conditional_t<detail::is_shard<std::remove_cv_t<Reference>>, std::remove_cv_t<Reference>, Reference>;
    if constexpr (detail::is_shard_for<Wanted, Given>()) {
      if constexpr (detail::is_shard<Given>) return given.data();
      else return Wanted(given).data();
    } else {
      if constexpr (accepted && detail::has_addresses<std::remove_cvref_t<Given>>)
        detail::refuse<detail::mistake::shard, detail::wrong_shard<K, input_count, Wanted, Given>>();
      return static_cast<typename Wanted::element*>(nullptr);
    }
  }
  /// Stores the addresses of the shards in `given`. The first of these shards has the number `K`; inputs are numbered
  /// before outputs. `shard_of(k, view)` returns the shard of a view of external memory.
  template <std::size_t K, class Given, class ShardOf>
  void put(std::size_t count, Given& given, const ShardOf& shard_of) {
    using Plain = std::remove_cv_t<Given>;
    if constexpr (detail::is_sharded_tree<Plain>()) {
      constexpr auto leaves = detail::leaf_count<Plain>();
      constexpr auto inputs = K >= input_count ? 0 : K + leaves <= input_count ? leaves : input_count - K;
      if constexpr (std::is_const_v<Given> && inputs < leaves) {
        constexpr auto k = K + inputs;
        if constexpr (accepted)
          detail::refuse<detail::mistake::shard, detail::wrong_shard<k, input_count, output_shard<k - input_count>, Given>>();
      } else {
        given_.put_tree<inputs>(view, planned::info, K, count, given);
      }
    } else if constexpr (!detail::is_leaf<Plain>) {
      [&]<std::size_t... P>(std::index_sequence<P...>) {
        (put<K + detail::leaves_before<Plain, P>()>(count, detail::part<P>(given), shard_of), ...);
      }(std::make_index_sequence<detail::part_count<Plain>()>{});
    } else if constexpr (detail::is_external_view<Plain>) {
      using element = typename Plain::element;
      // a pointer to const elements is const too, so that the message about a result names it
      std::conditional_t<std::is_const_v<element>, element* const, element*> shard =
          shard_of(std::integral_constant<std::size_t, K>{}, given);
      put<K>(count, shard, shard_of);
    } else {
      if constexpr (requires { std::data(given), std::size(given); } && !detail::is_shard<Plain> &&
                    !detail::is_placed_array<Plain>)
        static_assert(detail::accept_container<Plain>());
      if (count != 1) detail::throw_several_devices(count);
      if constexpr (K < input_count) given_.put(view, K, 0, static_cast<const void*>(shard_data<K, input_shard<K>>(given)));
      else given_.put(view, K, 0, static_cast<void*>(shard_data<K, output_shard<K - input_count>>(given)));
    }
  }
  detail::bound_devices bound_;
  detail::given_memory given_;
};

namespace detail {
template <class Mesh>
struct without_callable {
  template <class... Inputs>
  using program = compile<unusable{}, Mesh, Inputs...>;
};
template <class Input>
using input_constant = std::bool_constant<is_input<Input>>;

/// The base class after the error of a wrong mesh or input, so that the mistake is one error. It is the program of the
/// valid inputs with an unknown callable, whose result converts to any type.
template <class Mesh, class... Inputs>
struct without_mistakes {
  using type = boost::mp11::mp_apply<without_callable<Mesh>::template program,
                                     boost::mp11::mp_copy_if<boost::mp11::mp_list<Inputs...>, input_constant>>;
};
template <class Mesh, class... Inputs>
  requires(!is_mesh<Mesh>)
struct without_mistakes<Mesh, Inputs...> {
  using type = compile<unusable{}, mesh<>>;
};
}  // namespace detail

/// Reports arguments that are not a mesh or not inputs, with one error.
template <detail::constant_callable Callable, class Mesh, class... Inputs>
  requires(!detail::is_mesh<Mesh> || !(detail::is_input<Inputs> && ...))
class compile<Callable, Mesh, Inputs...> : public detail::without_mistakes<Mesh, Inputs...>::type {
  static_assert(detail::reports_arguments<Mesh, Inputs...>());
};

/// A program that is compiled with options.
template <detail::constant_callable Callable, class Mesh, options Options, class... Inputs>
class compile<Callable, Mesh, with<Options>, Inputs...> : public compile<Callable, detail::mesh_with<Mesh, Options>, Inputs...> {
};

}  // namespace gspmd
