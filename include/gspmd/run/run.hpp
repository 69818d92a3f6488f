// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/detail/driver/given_arguments.hpp"
#include "gspmd/detail/edge/scatter.hpp"
#include "gspmd/detail/run/bound_devices.hpp"
#include "gspmd/program/array.hpp"
#include "gspmd/program/row_major.hpp"
#include "gspmd/run/compile.hpp"

namespace gspmd::detail {

/// The result of `run` if the form of the callable's result is unknown. The compiler has then already reported an error
/// in the body or the call of the callable. Using the result must not add a second error. Therefore this class is an
/// array, converts to the type that it is assigned to, and is also a tuple (unknown_result).
template <class T>
class unknown_array : public array<T> {
 public:
  template <class U>
    requires(!std::is_base_of_v<U, unknown_array>)
  operator U() const {
    return U();
  }
};

/// The result for structured bindings: `auto [a, b]` needs the number of parts. It is 2, because most programs that
/// return several values return two.
template <class T>
class unknown_result : public unknown_array<T>,
                       public std::tuple<unknown_array<T>, unknown_array<T>, unknown_array<T>, unknown_array<T>, unknown_array<T>,
                                         unknown_array<T>, unknown_array<T>, unknown_array<T>> {};

}  // namespace gspmd::detail

template <class T>
struct std::tuple_size<gspmd::detail::unknown_result<T>> : std::integral_constant<std::size_t, 2> {};
template <std::size_t K, class T>
struct std::tuple_element<K, gspmd::detail::unknown_result<T>> {
  using type = gspmd::detail::unknown_array<T>;
};

namespace gspmd {
namespace detail {

/// The whole array of output `K` of a step.
template <class Step, std::size_t K>
using output_array = array<typename Step::template output_shard<K>::element>;

/// Collects the leaves of the arguments of `run` as pointers to whole arrays. Checks their number, element types and
/// shapes against the inputs.
class whole_inputs {
 public:
  template <class... Arguments>
  explicit whole_inputs(const plan_view& plan, const Arguments&... arguments) : plan_(plan) {
    (for_each_leaf(arguments, [&](const auto& leaf) { add(leaf); }), ...);
    if (pointers.size() != plan.inputs.size()) throw count_error(plan, "run", 0, plan.inputs.size(), pointers.size());
  }
  std::vector<const void*> pointers;

 private:
  template <class Leaf>
  void add(const Leaf& leaf) {
    const auto k = pointers.size();
    if constexpr (std::rank_v<Leaf> > 1) {
      check_shape(k, extents_of_array<Leaf>());
      add(flat_array<Leaf>{leaf});
    } else if constexpr (requires {
                           *std::data(leaf);
                           std::size(leaf);
                         }) {
      require_dense(leaf);
      check_type<leaf_element_t<Leaf>>(k);
      if (k < plan_.inputs.size()) {
        const auto& shape = plan_.value(plan_.inputs[k]).global;
        if constexpr (requires { leaf.shape().count; }) check_shape(k, leaf.shape());
        if (static_cast<std::int64_t>(std::size(leaf)) != elements(shape))
          throw error("run: input " + std::to_string(k) + " is " + std::string(shape_text(shape).view()) + " with " +
                      std::to_string(elements(shape)) + " elements and the array given has " + std::to_string(std::size(leaf)));
      }
      add_pointer(std::data(leaf));
    } else if constexpr (std::is_pointer_v<Leaf>) {
      check_type<leaf_element_t<Leaf>>(k);
      add_pointer(leaf);
    } else {
      static_assert(is_external_view<Leaf> || !has_addresses<Leaf>,  // both are reported by accept_container
                    "gspmd: run: give arrays, contiguous ranges, pointers, or structs of them");
    }
  }
  void check_shape(std::size_t k, const extents& given) const {
    if (k >= plan_.inputs.size()) return;
    if (const extents& shape = plan_.value(plan_.inputs[k]).global; !(shape == given))
      throw error(
          std::string((text("run: input ") << static_cast<std::int64_t>(k) << " is " << shape_text(shape)
                                           << " and the array given is " << shape_text(given) << differing_dim_text(shape, given))
                          .view()));
  }
  template <class Array>
  static extents extents_of_array() {
    return []<std::size_t... D>(std::index_sequence<D...>) {
      extents shape;
      (shape.push_back(static_cast<std::int64_t>(std::extent_v<Array, D>)), ...);
      return shape;
    }(std::make_index_sequence<std::rank_v<Array>>{});
  }
  void add_pointer(const void* leaf) {
    const auto k = pointers.size();
    if (leaf == nullptr && k < plan_.inputs.size() && elements(plan_.value(plan_.inputs[k]).global) > 0)
      throw error("run: input " + std::to_string(k) + " is given no memory: the pointer is null");
    pointers.push_back(leaf);
  }
  template <class T>
  void check_type(std::size_t k) const {
    if (k < plan_.inputs.size() && plan_.value(plan_.inputs[k]).type != dtype_of<T>())
      throw type_error(plan_, "run", k, dtype_of<T>());
  }

  const plan_view& plan_;
};

constexpr bool has_partial_outputs(const plan_view& plan) {
  for (const int o : plan.outputs)
    if (plan.value(o).layout.partial != 0) return true;
  return false;
}

/// Runs a planned program once on the devices of `comm`, from whole arrays to whole arrays. `inputs` are pointers, or
/// other arguments of cut_shard. `run(comm, inputs, outputs)` runs the program on shards.
/// If `MayBePartial` is true, partial outputs are reduced first.
template <bool MayBePartial, class Comm, class Whole, class Run>
void run_whole(const plan_view& plan, Comm& comm, const Whole* inputs, void* const* outputs, Run&& run) {
  require_devices(comm, static_cast<int>(plan.mesh->device_count()));
  const auto count = static_cast<std::size_t>(comm.local_count());
  std::vector<aligned_bytes> memory;
  std::vector<const void*> in;
  std::vector<void*> out;
  const auto shard_bytes = [](const planned_value& v) { return elements(v.local) * bytes_of(v.type); };
  for (std::size_t d = 0; d < count; ++d) {
    const int device = comm.device(static_cast<int>(d));
    const auto at = plan.mesh->coordinates_of(device);
    const auto take = [&](const planned_value& v, const char* what) {
      taken_for(plan, device, [&] { memory.emplace_back(shard_bytes(v), what); });
    };
    for (std::size_t k = 0; k < plan.inputs.size(); ++k) {
      const auto& v = plan.value(plan.inputs[k]);
      take(v, "a shard of an input");
      cut_shard(*plan.mesh, v, at, inputs[k], memory.back().get());
      in.push_back(memory.back().get());
    }
    for (const int o : plan.outputs) {
      take(plan.value(o), "a shard of an output");
      out.push_back(memory.back().get());
    }
  }
  run(comm, in.data(), out.data());
  for (std::size_t k = 0; k < plan.outputs.size(); ++k) {
    std::vector<const void*> shards;
    for (std::size_t d = 0; d < count; ++d) shards.push_back(out[d * plan.outputs.size() + k]);
    if constexpr (MayBePartial) {
      planned_value v = plan.value(plan.outputs[k]);
      std::vector<aligned_bytes> sums;
      if (v.layout.partial != 0) sums = reduce_terms(comm, *plan.mesh, v, shards);
      join_shards(comm, *plan.mesh, v, shards.data(), outputs[k]);
    } else {
      join_shards(comm, *plan.mesh, plan.value(plan.outputs[k]), shards.data(), outputs[k]);
    }
  }
}

struct any_devices {
  template <class Comm>
  void operator()(Comm&) const {}
};
template <class Backend> concept can_launch = requires(const Backend& backend) { launch(backend, 1, any_devices{}); };

}  // namespace detail

/// Runs a compiled program once on whole arrays and returns whole arrays. The result has the form of the callable's
/// result, with an array for each value.
///
/// `backend` is self{}, threads{}, simulated{} or mpi{comm}. With mpi, every rank passes the whole inputs and gets the
/// whole outputs.
/// Arguments are arrays, vectors, spans or pointers of the inputs' element types, also `double x[4][6]`, or structs of
/// these. Containers of several dims must be row-major (is_row_major).
/// If an input is partial, the first device along its axes gets the array, and the other devices get the identity of
/// the reduction. A partial output is reduced.
///
/// **Communication.** The collectives of the step. A partial output is reduced. With mpi, each split output is
/// gathered.
/// **Errors.** Compile error: a missing or superfluous argument, or an argument of the wrong element type. Throws
/// gspmd::error: a wrong shape, number of elements or number of devices, and every failure on a device. The length of a
/// std::vector of arrays is a run-time value. Therefore the number and the element types of the arguments after the
/// vector are also checked at run time. With mpi, a wrong argument on one rank throws on all ranks, and the text names
/// that rank.
/// **Example.**
///
///     auto y = run<step>(threads{}, x, w1, w2);
template <class Step, class Backend, class... Arguments>
auto run(const Backend& backend, const Arguments&... arguments) {
  using result = typename Step::callable_result;  // first, so that the error of a wrong program is reported from this line
  static_assert(
      detail::can_launch<Backend>,
      "gspmd: run: the first argument says where: self{}, threads{}, simulated{}, or with gspmd/comm/mpi.hpp mpi{comm} or "
      "mpi{comm, options}");
  static_assert((detail::accept_containers<Arguments>() && ...));
  static_assert(detail::call_arguments<Step, "run", 0, Step::input_count, Arguments...>::accept());
  auto [inputs, arrays] = detail::before_launch(backend, [&] {
    return [&]<std::size_t... K>(std::index_sequence<K...>) {
      return std::pair(detail::whole_inputs(Step::view, arguments...),
                       std::tuple<detail::output_array<Step, K>...>(
                           detail::output_array<Step, K>(Step::view.value(Step::view.outputs[K]).global)...));
    }(std::make_index_sequence<Step::output_count>{});
  });
  const void* const* const given = inputs.pointers.data();
  void* outputs[Step::output_count + 1]{};
  std::apply(
      [&](auto&... a) {
        std::size_t k = 0;
        ((outputs[k++] = a.data()), ...);
      },
      arrays);
  // GCC's -Wshadow compares names in a template with the user's globals. Therefore no name here is likely in a program
  // (step, comm, devices, f).
  const auto on_devices = [&](auto& group) {
    Step held;
    detail::run_whole<detail::has_partial_outputs(Step::view)>(
        Step::view, group, given, outputs,
        [&held](auto& members, const void* const* in, void* const* out) { held.run(members, in, out); });
  };
  if constexpr (detail::can_launch<Backend>) launch(backend, Step::device_count, on_devices);
  if constexpr (Step::is_form_known) return detail::like_result<result, 0>(arrays);
  else return detail::unknown_result<typename Step::template output_element<0>>{};
}

}  // namespace gspmd
