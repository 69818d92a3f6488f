// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/budget.hpp"
#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/exec/bound_devices.hpp"
#include "gspmd/detail/exec/constant_tables.hpp"
#include "gspmd/detail/exec/given_memory.hpp"
#include "gspmd/detail/exec/given_shard.hpp"
#include "gspmd/detail/exec/static_program.hpp"
#include "gspmd/detail/exec/step_checks.hpp"
#include "gspmd/detail/passes/canonical.hpp"
#include "gspmd/detail/passes/make_plan.hpp"
#include "gspmd/detail/passes/sub_axes.hpp"
#include "gspmd/detail/support/refuse.hpp"
#include "gspmd/inputs.hpp"
#include "gspmd/mesh.hpp"
#include "gspmd/shard_view.hpp"
#include "gspmd/sharded_array.hpp"

namespace gspmd {
namespace detail {

template <class Input>
using traced_input = decltype(Input::trace(std::declval<graph&>(), 0));

template <auto Callable, class... Inputs>
inline constexpr bool takes = std::is_invocable_v<decltype(Callable), traced_input<Inputs>&...>;

template <auto Callable, class... Inputs>
struct traced_result {
  using type = value;
};

template <std::size_t Count>
struct wrong_inputs {
  static constexpr text make() {
    return text("compile: ") << static_cast<std::int64_t>(Count)
                             << " inputs are given, and the callable takes another number of arguments; a record is one argument";
  }
};
template <auto Callable, class... Inputs>
  requires takes<Callable, Inputs...>
struct traced_result<Callable, Inputs...> {
  using type = std::remove_cvref_t<std::invoke_result_t<decltype(Callable), traced_input<Inputs>&...>>;
};

/// A mesh of which the planner cut an axis (passes/sub_axes.hpp).
template <class Mesh, axis_cut Cut>
struct cut_mesh {
  using base = typename base_mesh<Mesh>::type;  // the user's
  static constexpr mesh_info info = cut_axis(Mesh::info, Cut);
  static constexpr int device_count = Mesh::device_count;
  static constexpr void refine(graph& g) {
    if constexpr (requires { Mesh::refine(g); }) Mesh::refine(g);
    cut_axis(g, info, Cut.axis);
  }
};
template <class Mesh, axis_cut Cut>
struct base_mesh<cut_mesh<Mesh, Cut>> {
  using type = typename cut_mesh<Mesh, Cut>::base;
};

/// Traces a callable on the inputs; `graph` is the program for one giant device, or says what is wrong with it.
template <auto Callable, class Mesh, class... Inputs>
constexpr graph trace_program() {
  graph g;
  g.mesh = &base_mesh<Mesh>::type::info;
  g.allow_replication = false;
  if constexpr (!accepts_meshes<typename base_mesh<Mesh>::type>) g.fail({}, "compile", mistake::reported, "the meshes");
  int number = 0;
  const auto next = [&]<class Input>(std::type_identity<Input>) {
    auto argument = Input::trace(g, number);
    number += Input::leaves;
    return argument;
  };
  auto arguments = std::tuple{next(std::type_identity<Inputs>{})...};
  if constexpr (!takes<Callable, Inputs...>) {
    g.fail({}, "compile", mistake::reported, "the callable does not take these inputs");
  } else {
    auto result = std::apply(Callable, arguments);
    for_each_leaf(result, [&](value& leaf) {
      if (leaf.is_valid()) g.outputs.push_back(leaf.id());
      else
        g.fail({}, "compile", mistake::other, "a result of the callable is no value of this program; return what operators give");
    });
  }
  if (g.failed()) return g;
  if constexpr (requires { Mesh::refine(g); }) Mesh::refine(g);
  return canonical_order(g);
}

/// What stands in for a refused program, so that one mistake is one error: its inputs, and numbers as its results.
template <class Mesh, std::size_t Outputs, class... Inputs>
constexpr plan stand_in_plan() {
  graph g;
  g.mesh = &Mesh::info;
  int number = 0;
  ((static_cast<void>(Inputs::trace(g, number)), number += Inputs::leaves), ...);
  for (std::size_t k = 0; k < Outputs; ++k) g.outputs.push_back(add_constant(g, dtype::f32, {}, 0, 0, {}));
  return make_plan(g, Mesh::info.shape);
}

/// How many nodes are partitioned in one evaluation. Clang stops after 1,048,576 steps, GCC after 33 million.
#if defined(__clang__)
inline constexpr std::size_t nodes_per_evaluation = 64;
#else
inline constexpr std::size_t nodes_per_evaluation = 1024;
#endif
static_assert(nodes_per_evaluation % partitioner::nodes_per_stretch == 0);

/// The local program after `Part` times so many nodes: one evaluation, if the guess of its size holds.
template <class Tables, std::size_t Part>
struct partition_part {
  static constexpr std::size_t nodes = Tables::traced.sizes.nodes;
  static constexpr std::size_t last = Part * nodes_per_evaluation < nodes ? Part * nodes_per_evaluation : nodes;

  static constexpr partition_state make() {
    partition_state state;
    if constexpr (Part > 0) {
      const graph g = Tables::frozen.thaw();
      partitioner parts(g, Tables::mesh(), Tables::completed);
      parts.begin();
      if constexpr (Part > 1) parts.load(partition_part<Tables, Part - 1>::state().thaw());
      parts.emit_nodes(static_cast<int>((Part - 1) * nodes_per_evaluation), static_cast<int>(last));
      if (last == nodes) state.program = finish_partition(parts, g, Tables::mesh());
      else state = parts.save();
    }
    return state;
  }
  template <partition_sizes Room>
  static constexpr constant_partition_state<Room> make_with_room() {
    const partition_state s = make();
    return constant_partition_state<Room>(s);
  }
  static constexpr partition_sizes guess{2 * last + 16, 2 * last + 16, 5 * nodes + 2 * last + 64};
  static constexpr constant_partition_state<guess> first = make_with_room<guess>();
  static constexpr const auto& state() {
    if constexpr (first.fits()) return first;
    else return exact<first.sizes>;
  }
  static constexpr partition_sizes sizes() { return first.sizes; }

 private:
  template <partition_sizes Room>
  static constexpr constant_partition_state<Room> exact = make_with_room<Room>();
};

/// The tables of a compiled program. Compilers limit the steps of one evaluation (Clang: 1,048,576), so that each pass is an
/// evaluation of its own, from constant to constant.
template <auto Callable, class Mesh, class... Inputs>
struct static_tables {
  static constexpr graph trace() { return trace_program<Callable, Mesh, Inputs...>(); }
  static constexpr const mesh_shape& mesh() { return Mesh::info.shape; }
  struct trace_facts {
    graph_sizes sizes;
    bool failed = false;
  };
  static constexpr trace_facts traced = [] {
    const graph g = trace();
    return g.failed() ? trace_facts{{}, true} : trace_facts{{g.nodes.size(), g.inputs.size(), g.outputs.size()}, false};
  }();
  static constexpr constant_graph<traced.sizes> frozen = [] {
    const graph g = trace();
    return constant_graph<traced.sizes>(g);
  }();

  static constexpr std::array<sharding, traced.sizes.nodes> completed = [] {
    std::array<sharding, traced.sizes.nodes> result{};
    if (!traced.failed) {
      const graph g = frozen.thaw();
      const auto list = complete_graph(g, Mesh::info.shape);
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = list[i];
    }
    return result;
  }();

  using partitioned = partition_part<static_tables, (traced.sizes.nodes + nodes_per_evaluation - 1) / nodes_per_evaluation>;

  static constexpr std::array<planned_node, traced.sizes.nodes> nodes = [] {
    std::array<planned_node, traced.sizes.nodes> result{};
    if (!traced.failed) {
      const graph g = frozen.thaw();
      const partition_state local = partitioned::state().thaw();
      const auto list = list_nodes(g, Mesh::info.shape, local.program);
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = list[i];
    }
    return result;
  }();
  static constexpr plan make(std::vector<int>& base) {
    if constexpr (traced.failed) {
      const graph g = trace();
      plan refused;
      refused.error = g.error;
      refused.broken = g.broken;
      return refused;
    } else {
      const graph g = frozen.thaw();
      return schedule_program(g, Mesh::info.shape, partitioned::state().thaw().program, base);
    }
  }
  struct facts {
    table_sizes sizes;
    bool ok = false;
    mistake broken = mistake::other;
  };
  /// The steps, with room to spare, and how many there are; of a refused program the stand-in.
  template <table_sizes Room>
  struct scheduled {
    facts about;
    constant_tables<Room> tables;
    std::array<int, Room.values> base{};
  };
  template <table_sizes Room>
  static constexpr scheduled<Room> schedule() {
    std::vector<int> base;
    const plan p = make(base);
    if (p.error.empty()) {
      scheduled<Room> result{{sizes_of(p), true, mistake::other}, constant_tables<Room>(p)};
      result.about.sizes.nodes = result.about.sizes.completed = traced.sizes.nodes;
      for (std::size_t i = 0; i < base.size() && i < Room.values; ++i) result.base[i] = base[i];
      return result;
    }
    const plan q = stand_in_plan<Mesh, leaf_count<typename traced_result<Callable, Inputs...>::type>(), Inputs...>();
    return {{sizes_of(q), false, p.broken}, constant_tables<Room>(q)};
  }
  static constexpr table_sizes guess = guess_sizes(traced.sizes.nodes, partitioned::sizes());
  static constexpr scheduled<guess> first = schedule<guess>();
  static constexpr facts measured = first.about;
  static constexpr auto steps = [] {
    if constexpr (fits(measured.sizes, guess)) return first;
    else return schedule<measured.sizes>();
  }();
  struct new_order {
    bool is_any = false;
    std::array<int, measured.sizes.steps> steps{};
  };
  static constexpr new_order order = [] {
    new_order result;
    if constexpr (measured.ok) {
      const std::span<const int> base(steps.base.data(), measured.sizes.values);
      result.is_any = step_orderer(steps.tables.steps_view(measured.sizes), base).run(result.steps.data());
    }
    return result;
  }();
  template <bool Ordered>
  static constexpr constant_tables<measured.sizes> placed = [] {
    if constexpr (!measured.ok) return constant_tables<measured.sizes>(steps.tables);
    plan p = steps.tables.thaw(measured.sizes);
    p.nodes.assign(nodes.begin(), nodes.end());
    p.completed.assign(completed.begin(), completed.end());
    if constexpr (Ordered) put_in_order(p, order.steps);
    place_in_memory(p, std::vector<int>(steps.base.data(), steps.base.data() + measured.sizes.values));
    return constant_tables<measured.sizes>(p);
  }();
  static constexpr const constant_tables<measured.sizes>& choose() {
    if constexpr (order.is_any) return is_smaller(placed<true>, placed<false>) ? placed<true> : placed<false>;
    else return placed<false>;
  }
  static constexpr const constant_tables<measured.sizes>& tables = choose();
  static constexpr plan_view view{tables};

  struct refusal {
    static constexpr text make() {
      std::vector<int> base;
      return static_tables::make(base).error;
    }
  };
};

/// The mesh that a program is planned on: the user's, with the axes cut that reshapes split.
template <auto Callable, class Mesh, class... Inputs>
struct planned_mesh {
  using tables = static_tables<Callable, Mesh, Inputs...>;
  static constexpr axis_cut cut = [] {
    if constexpr (!tables::traced.failed)
      if (has_reshape(tables::frozen.nodes)) {
        const graph g = tables::frozen.thaw();
        return find_cut(g, tables::completed);
      }
    return axis_cut{};
  }();
  static auto find() {
    if constexpr (cut.axis < 0) return std::type_identity<Mesh>{};
    else return planned_mesh<Callable, cut_mesh<Mesh, cut>, Inputs...>::find();
  }
  using type = typename decltype(find())::type;
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
  using planned = typename detail::planned_mesh<Callable, Mesh, Inputs...>::type;
  using program = detail::static_tables<Callable, planned, Inputs...>;
  static constexpr bool is_accepted() {
    if constexpr (!detail::takes<Callable, Inputs...>)
      detail::refuse<detail::mistake::inputs, detail::wrong_inputs<sizeof...(Inputs)>>();
    else if constexpr (!program::measured.ok && program::measured.broken != detail::mistake::reported)
      detail::refuse<program::measured.broken, typename program::refusal>();
    return program::measured.ok;
  }
  static_assert(is_accepted() || true);

  template <class Layout, std::size_t... D>
  static auto split_type(std::index_sequence<D...>)
      -> split<detail::spec_of(planned::info, Layout::value().layout, static_cast<int>(D))...>;
  template <class Layout, std::size_t... D>
  static auto dims_type(std::index_sequence<D...>) -> dims<Layout::value().global[static_cast<int>(D)]...>;
  template <class Layout, bool ReadOnly>
  struct shard_type {
    using T = detail::element_t<Layout::value().type>;
    using sequence = std::make_index_sequence<static_cast<std::size_t>(Layout::value().global.count)>;
    using type = gspmd::shard_view<std::conditional_t<ReadOnly, const T, T>, planned, decltype(dims_type<Layout>(sequence{})),
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
  template <fixed_string Axis>
  static constexpr detail::collective_filter over_axis() {
    constexpr auto axes = planned::info.mask_of(Axis.view());
    static_assert(axes != 0, "gspmd: step: the mesh has no axis of this name");
    return detail::over_axes(axes);
  }

 public:
  static constexpr const detail::plan_view& view = program::view;
  using mesh_type = planned;
  using callable_result = typename detail::traced_result<Callable, Inputs...>::type;
  /// False for a program with a mistake; the compiler has reported it, and results of rank 0 stand in for those of the program.
  static constexpr bool accepted = program::measured.ok;

  static constexpr int device_count = Mesh::device_count;
  static constexpr std::size_t input_count = program::measured.sizes.inputs;
  static constexpr std::size_t output_count = program::measured.sizes.outputs;

  /// The collectives, in the order in which they stand in the program every device runs: once in a loop, and in both bodies of a
  /// conditional. All numbers that follow are those of a run: a loop counts for each trip, and of the bodies of a conditional the
  /// one with more of what is counted.
  static constexpr auto collectives =
      detail::list_collectives<detail::count_collectives(program::view)>(program::view, planned::info);
  /// Their number; of that, those over the axis, and those of the kind.
  static constexpr std::int64_t collective_count = detail::total_collectives(program::view);
  template <fixed_string Axis>
  static constexpr std::int64_t collective_count_over = detail::total_collectives(program::view, over_axis<Axis>());
  template <collective_kind Kind>
  static constexpr std::int64_t collective_count_in = detail::total_collectives(program::view, detail::of_kind(Kind));
  /// What one device sends, on the usual ring and direct algorithms; of that, in collectives over the
  /// axis (a collective over two axes counts for both), and in collectives of the kind.
  static constexpr std::int64_t bytes_sent_per_device = detail::total_bytes(program::view);
  template <fixed_string Axis>
  static constexpr std::int64_t bytes_sent_over = detail::total_bytes(program::view, over_axis<Axis>());
  template <collective_kind Kind>
  static constexpr std::int64_t bytes_sent_in = detail::total_bytes(program::view, detail::of_kind(Kind));
  /// In how many messages, by the same algorithms: among n devices n-1 for all_gather, reduce_scatter and all_to_all, 2(n-1)
  /// for all_reduce, one for collective_permute (two for some shifts), n-1 where the shards of an operand go round a ring.
  static constexpr std::int64_t messages_sent_per_device = detail::total_messages(program::view);
  template <fixed_string Axis>
  static constexpr std::int64_t messages_sent_over = detail::total_messages(program::view, over_axis<Axis>());
  template <collective_kind Kind>
  static constexpr std::int64_t messages_sent_in = detail::total_messages(program::view, detail::of_kind(Kind));
  /// The memory of inputs, outputs and everything between them, on one device.
  static constexpr std::int64_t peak_bytes_per_device = detail::peak_bytes(program::view);
  /// What the `mpi` backend may add to it, to pack the messages of collectives whose data does not lie one after the other.
  /// Other backends add nothing.
  static constexpr std::int64_t packing_bytes_per_device = detail::packing_bytes(program::view);
  /// The arithmetic of the device that has most of it: 2 for every combination of local indices of an einsum of two operands,
  /// 1 for every local element that a reduction reads or that an elementwise operator (a `map` too) gives; nothing for data
  /// that only moves. Trips of loops and bodies of conditionals count as in the bytes.
  static constexpr std::int64_t flops_per_device = detail::total_flops(program::view);

  /// The view of a shard that input or output `K` takes (leaves of groups are counted one by one).
  template <std::size_t K>
  using input_shard = typename shard_type<input_layout<K>, true>::type;
  template <std::size_t K>
  using output_shard = typename shard_type<output_layout<K>, false>::type;

  /// Their element types.
  template <std::size_t K>
  using input_element = detail::element_t<view.value(view.inputs[K]).type>;
  template <std::size_t K>
  using output_element = detail::element_t<view.value(view.outputs[K]).type>;

  /// The input whose memory output `K` may be written to: a weight and its update. -1: none.
  template <std::size_t K>
  static constexpr int shared_input = view.shared_inputs[K];

  /// The number of the first leaf of argument `K`.
  template <std::size_t K>
  static constexpr std::size_t first_input = [] {
    const int leaves_of[] = {Inputs::leaves..., 0};
    std::size_t first = 0;
    for (std::size_t k = 0; k < K; ++k) first += static_cast<std::size_t>(leaves_of[k]);
    return first;
  }();

  /// Runs the program on the devices of `comm`: takes the shards of the inputs, then of the outputs, one by one or in
  /// structs and tuples. A shard is a sharded_array, or, where `comm` holds one device, an input_shard or output_shard view
  /// or anything that can be made to one (a pointer, a span, a vector). Collective. After the first call nothing is
  /// allocated. Outputs must not overlap inputs, but output `k` may be the memory of input `shared_input<k>`. Throws
  /// gspmd::error: a wrong device count, a wrong buffer size, a sharded_array of another sharding, and whatever goes wrong
  /// on a device, with rank and operator.
  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    using given = std::tuple<std::remove_cvref_t<Shards>...>;
    constexpr auto leaf_count = detail::leaf_count<given>();
    if constexpr (leaf_count == input_count + output_count) {
      const auto count = static_cast<std::size_t>(comm.local_count());
      given_.resize(view, count);
      [&]<std::size_t... K>(std::index_sequence<K...>) {
        (put<detail::leaves_before<given, K>()>(count, shards), ...);
      }(std::index_sequence_for<Shards...>{});
      run(comm, given_.inputs.data(), given_.outputs.data());
    } else {
      detail::refuse<detail::mistake::shard, detail::wrong_shard_count<leaf_count, input_count, output_count>>();
    }
  }

  /// The same for a communicator that holds several devices: `inputs[d * input_count + k]` is input k of its device d.
  template <communicator Comm>
  void run(Comm& comm, const void* const* inputs, void* const* outputs) {
    bound_.bind(comm, view, inputs, outputs);
    detail::run_static<program>(comm, bound_.devices.data(), bound_.from.data(), bound_.to.data());
  }

 private:
  template <std::size_t K, class Wanted, class Reference>
  static auto shard_data(Reference& given) {
    using Given = std::conditional_t<detail::is_shard<std::remove_cv_t<Reference>>, std::remove_cv_t<Reference>, Reference>;
    if constexpr (detail::is_shard_for<Wanted, Given>()) {
      if constexpr (detail::is_shard<Given>) return given.data();
      else return Wanted(given).data();
    } else {
      if constexpr (accepted) detail::refuse<detail::mistake::shard, detail::wrong_shard<K, input_count, Wanted, Given>>();
      return static_cast<typename Wanted::element*>(nullptr);
    }
  }
  /// Notes where the shards of leaf `K` and the following ones lie.
  template <std::size_t K, class Given>
  void put(std::size_t count, Given& given) {
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
        (put<K + detail::parts_before<Plain, P>()>(count, detail::part<P>(given)), ...);
      }(std::make_index_sequence<detail::part_count<Plain>()>{});
    } else {
      if (count != 1) detail::throw_several_devices(count);
      if constexpr (K < input_count) given_.put(view, K, 0, static_cast<const void*>(shard_data<K, input_shard<K>>(given)));
      else given_.put(view, K, 0, static_cast<void*>(shard_data<K, output_shard<K - input_count>>(given)));
    }
  }
  detail::bound_devices bound_;
  detail::given_memory given_;
};

}  // namespace gspmd
