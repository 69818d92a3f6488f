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
#include "gspmd/detail/edge/whole_run.hpp"
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

struct any_devices {
  template <class Comm>
  void operator()(Comm&) const {}
};
template <class Backend> concept can_launch = requires(const Backend& backend) { launch(backend, 1, any_devices{}); };

}  // namespace detail

/// Runs a compiled program once on whole arrays and returns whole arrays. The result has the form of the callable's
/// result, with an array for each value.
///
/// `backend` is serial{}, threads{}, simulated{} or mpi{comm}. With mpi, every rank passes the whole inputs and gets
/// the whole outputs. Arguments are arrays, vectors, spans or pointers of the inputs' element types, also `double
/// x[4][6]`, or structs of arrays, vectors, spans and pointers. Containers of several dims must be row-major
/// (is_row_major). If an input is partial, the first device along its axes gets the array, and the other devices get
/// the identity of the reduction. A partial output is reduced.
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
      "gspmd: run: the first argument says where: serial{}, threads{}, simulated{}, or with gspmd/comm/mpi.hpp mpi{comm} or "
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
