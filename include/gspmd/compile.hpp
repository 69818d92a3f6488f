// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/budget.hpp"
#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/exec/constant_tables.hpp"
#include "gspmd/detail/exec/static_program.hpp"
#include "gspmd/detail/passes/make_plan.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/inputs.hpp"
#include "gspmd/mesh.hpp"
#include "gspmd/shard_view.hpp"

namespace gspmd {
namespace detail {

/// Traces a callable on the inputs; `graph` is the program for one giant device, or says what is wrong with it.
template <auto Callable, class Mesh, class... Inputs>
constexpr auto trace_program() {
  graph g;
  g.mesh = &Mesh::info;
  int number = 0;
  const auto next = [&]<class Input>(std::type_identity<Input>) {
    auto argument = Input::trace(g, number);
    number += Input::leaves;
    return argument;
  };
  auto arguments = std::tuple{next(std::type_identity<Inputs>{})...};
  auto result = std::apply(Callable, arguments);
  for_each_leaf(result, [&](value& leaf) {
    if (leaf.is_valid()) g.outputs.push_back(leaf.id());
  });
  return g;
}

/// The tables of a compiled program.
template <auto Callable, class Mesh, class... Inputs>
struct static_tables {
  static constexpr plan make() {
    const graph g = trace_program<Callable, Mesh, Inputs...>();
    if (g.failed()) {
      plan refused;
      refused.error = g.error;
      return refused;
    }
    return make_plan(g, Mesh::info.shape);
  }
  struct facts {
    table_sizes sizes;
    bool ok = false;
  };
  static constexpr facts measured = [] {
    const plan p = make();
    return facts{sizes_of(p), p.error.empty()};
  }();
  static constexpr constant_tables<measured.sizes> tables{make()};
  static constexpr plan_view view{tables};

  struct refusal {
    static constexpr text make() { return static_tables::make().error; }
  };
};

}  // namespace detail

/// A program compiled for a mesh: completion, partitioning, choice of collectives and memory happen when the type is used; all
/// that was decided is a constant.
///
///     using step = compile<mlp, pod, in<float, dims<64, 512>, split<"data", _>>, in<float, dims<512, 2048>, split<_, "model">>>;
///     static_assert(step::collectives == list{all_reduce<"model">});
///
/// `Callable` is a captureless lambda (or another constant callable) on `value`s; it returns a value, a tuple, or a struct of
/// values. An object of the type owns the scratch memory of a device; see operator().
template <auto Callable, class Mesh, class... Inputs>
class compile {
  using program = detail::static_tables<Callable, Mesh, Inputs...>;
  static constexpr bool is_accepted() {
    if constexpr (!program::measured.ok) detail::refused_program<typename detail::message_of<typename program::refusal>::type>::report();
    return program::measured.ok;
  }
  static_assert(is_accepted() || true);

  using leaves = boost::mp11::mp_append<typename detail::input_leaves<Inputs>::type...>;

  template <class Layout, std::size_t... D>
  static auto split_type(std::index_sequence<D...>) -> split<detail::spec_of(Mesh::info, Layout::value().layout, static_cast<int>(D))...>;
  template <class Layout, std::size_t... D>
  static auto dims_type(std::index_sequence<D...>) -> dims<Layout::value().global[static_cast<int>(D)]...>;
  template <class Layout, bool ReadOnly>
  struct shard_type {
    using T = detail::element_t<Layout::value().type>;
    using sequence = std::make_index_sequence<static_cast<std::size_t>(Layout::value().global.count)>;
    using type = gspmd::shard_view<std::conditional_t<ReadOnly, const T, T>, Mesh, decltype(dims_type<Layout>(sequence{})),
                              decltype(split_type<Layout>(sequence{}))>;
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
  using mesh_type = Mesh;
  using callable_result = decltype(std::apply(Callable, std::declval<std::tuple<decltype(Inputs::trace(std::declval<detail::graph&>(), 0))...>>()));

  static constexpr int device_count = Mesh::device_count;
  static constexpr std::size_t input_count = program::measured.sizes.inputs;
  static constexpr std::size_t output_count = program::measured.sizes.outputs;

  /// The collectives, in the order in which every device runs them.
  static constexpr auto collectives = detail::list_collectives<detail::count_collectives(program::view)>(program::view, Mesh::info);
  /// What one device sends, on the usual ring and direct algorithms with padded shards.
  static constexpr std::int64_t bytes_sent_per_device = detail::bytes_over(program::view, ~detail::axis_mask{0});
  /// Of that, in collectives over the axis.
  template <fixed_string Axis>
  static constexpr std::int64_t bytes_sent_over = detail::bytes_over(program::view, [] {
    constexpr int axis = Mesh::info.find(Axis.view());
    static_assert(axis >= 0, "gspmd: bytes_sent_over: the mesh has no axis of this name");
    return detail::axis_bit(axis);
  }());
  /// The memory of inputs, outputs and everything between them, on one device.
  static constexpr std::int64_t peak_bytes_per_device = detail::peak_bytes(program::view);

  /// The view of a shard that input or output `K` takes (leaves of groups are counted one by one).
  template <std::size_t K>
  using input_shard = typename shard_type<input_layout<K>, true>::type;
  template <std::size_t K>
  using output_shard = typename shard_type<output_layout<K>, false>::type;

  /// The input whose memory output `K` may be written to: a weight and its update. -1: none.
  template <std::size_t K>
  static constexpr int shared_input = view.shared_inputs[K];

  /// Runs the program on the device of `comm` (which holds one): takes the shards of the inputs, then of the outputs, as
  /// input_shard and output_shard views or anything they can be made from. Collective. After the first call nothing is
  /// allocated. Outputs must not overlap inputs, but output `k` may be the memory of input `shared_input<k>`. Throws gspmd::error: a wrong device count, a wrong buffer size, and
  /// whatever goes wrong on a device, with rank and operator.
  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    static_assert(sizeof...(Shards) == input_count + output_count,
                  "gspmd: step: give the shards of all inputs, then of all outputs");
    const void* inputs[input_count + 1];
    void* outputs[output_count + 1];
    [&]<std::size_t... K>(std::index_sequence<K...>) { (put<K>(shards, inputs, outputs), ...); }(std::index_sequence_for<Shards...>{});
    run(comm, inputs, outputs);
  }

  /// The same for a communicator that holds several devices: `inputs[d * input_count + k]` is input k of its device d.
  template <communicator Comm>
  void run(Comm& comm, const void* const* inputs, void* const* outputs) {
    const auto count = static_cast<std::size_t>(comm.local_count());
    if (devices_.size() != count) {
      require_devices(comm, device_count);
      arenas_.clear();
      devices_.clear();
      for (std::size_t d = 0; d < count; ++d) {
        arenas_.emplace_back(view.arena_bytes);
        devices_.push_back({nullptr, nullptr, arenas_.back().get(), Mesh::info.shape.coordinates_of(comm.device(static_cast<int>(d)))});
      }
      from_.resize(count);
      to_.resize(count);
      detail::single_threaded_blas();
    }
    for (std::size_t d = 0; d < count; ++d)
      for (std::size_t k = 0; k < output_count; ++k)
        for (std::size_t i = 0; i < input_count; ++i)
          if (outputs[d * output_count + k] == inputs[d * input_count + i] && view.shared_inputs[k] != static_cast<int>(i) &&
              detail::elements(view.value(view.outputs[k]).local) > 0)
            throw error("step: output " + std::to_string(k) + " is given the memory of input " + std::to_string(i) +
                        ", which is read after the output is written; give it memory of its own (step::shared_input says what may be shared)");
    for (std::size_t d = 0; d < count; ++d) {
      devices_[d].inputs = inputs + d * input_count;
      devices_[d].outputs = outputs + d * output_count;
    }
    detail::run_static<program>(comm, devices_.data(), from_.data(), to_.data());
  }

 private:
  template <class Wanted, class Reference>
  static Wanted as_shard(Reference& given) {
    using Given = std::remove_cv_t<Reference>;
    if constexpr (detail::is_shard<Given>) {
      static_assert(std::is_same_v<typename Given::mesh_type, Mesh>,
                    "gspmd: step: a shard on another mesh; make the shard with the mesh that the step was compiled for");
      static_assert(Given::global_extents == Wanted::global_extents,
                    "gspmd: step: a shard of a tensor of another global shape; use step::input_shard or step::output_shard");
      static_assert(detail::same_layout(Given::layout, Wanted::layout),
                    "gspmd: step: a shard of another sharding than the step takes here; reshard it, or annotate the input so");
      return Wanted(given.data());
    } else {
      return Wanted(given);
    }
  }
  template <std::size_t K, class Given>
  static void put(Given& given, const void** inputs, void** outputs) {
    if constexpr (K < input_count) inputs[K] = as_shard<input_shard<K>>(given).data();
    else outputs[K - input_count] = as_shard<output_shard<K - input_count>>(given).data();
  }

  std::vector<detail::aligned_bytes> arenas_;
  std::vector<detail::device_memory> devices_;
  std::vector<const void*> from_;
  std::vector<void*> to_;
};

}  // namespace gspmd
