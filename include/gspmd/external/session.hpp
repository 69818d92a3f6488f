// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/dynamic/program.hpp"
#include "gspmd/dynamic/step.hpp"
#include "gspmd/extend/edge.hpp"
#include "gspmd/external/detail/taken_shards.hpp"
#include "gspmd/external/whole.hpp"

/// Programs that are compiled at run time, on external memory with any strides.
namespace gspmd {

namespace detail {

template <class Backend>
void run_external(const dynamic::program& program, const Backend& backend, const std::vector<external_block>& inputs,
                  void* const* outputs) {
  launch(backend, static_cast<int>(program.view().mesh->device_count()), [&](auto& comm) {
    dynamic::session steps(program);
    run_whole<true>(program.view(), comm, inputs.data(), outputs,
                    [&](auto& devices, const void* const* in, void* const* out) { steps.run(devices, in, out); });
  });
}

/// Checks a sharded_array: see taken_shards.
inline void check_given_array(const plan_view& plan, const mesh_info& mesh, std::size_t leaf, int count, const planned_value& has,
                              const mesh_shape& on) {
  check_sharded(plan, mesh, leaf, 1, count, has, on);
}

}  // namespace detail

/// Returns the results of a program, like `program.run`, with strided_views among the arguments. Each device copies its
/// shard directly from the view.
///
/// **Example.**
///
///     auto y = run(program, threads{}, strided_view(matrix), w)[0];
template <class Backend, class... Arguments>
std::vector<dynamic::any_array> run(const dynamic::program& program, const Backend& backend, const Arguments&... arguments) {
  static_assert((detail::accept_views<Arguments>() && ...));
  const auto& plan = program.view();
  auto [inputs, arrays] = detail::before_launch(backend, [&] {
    std::vector<dynamic::any_array> made;
    for (const int o : plan.outputs) {
      const auto& v = plan.value(o);
      made.push_back({v.type,
                      {v.global.begin(), v.global.end()},
                      std::vector<std::byte>(static_cast<std::size_t>(detail::elements(v.global) * detail::bytes_of(v.type)))});
    }
    return std::pair(detail::external_inputs(plan, arguments...), std::move(made));
  });
  std::vector<void*> outputs;
  for (auto& a : arrays) outputs.push_back(a.bytes.data());
  detail::run_external(program, backend, inputs, outputs.data());
  return std::move(arrays);
}

/// Runs a program and writes its whole results to `results`, like run_into of a compiled step.
///
/// **Example.**
///
///     run_into(program, threads{}, strided_view(y), strided_view(x), w);
template <class Backend, class Results, class... Arguments>
void run_into(const dynamic::program& program, const Backend& backend, const Results& results, const Arguments&... arguments) {
  static_assert(detail::accept_views<Results>() && (detail::accept_views<Arguments>() && ...));
  auto [inputs, outputs] = detail::before_launch(backend, [&] {
    auto given = detail::external_inputs(program.view(), arguments...);
    detail::external_results places(program.view(), given, results);
    return std::pair(std::move(given), std::move(places));
  });
  detail::run_external(program, backend, inputs, outputs.pointers());
  outputs.put_back();
}

/// A session with typed and checked shards, which can be views of external memory, like strided_step for a program that
/// is compiled at run time.
///
/// A shard is given as:
///
///   - a view, of the local extents or without the padding
///   - a sharded_array
///   - a contiguous range with the number of elements of a shard
///   - a pointer
///
/// **Communication.** Collective.
/// **Errors.** Throws gspmd::error: another number of shards; another type, shape, sharding or number of elements; the
/// errors of session.
/// **Threads.** Like session.
/// **Example.**
///
///     strided_session s(program);
///     s(comm, strided_view(u, {n + 2, m + 2}).interior({1, 1}), strided_view(next, {n + 2, m + 2}).interior({1, 1}));
class strided_session {
 public:
  explicit strided_session(const dynamic::program& p) : program_(p), session_(p) {}

  /// Runs on the only device of `comm`, with the shards of all inputs, then of all outputs. Collective.
  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    static_assert((detail::accept_views<std::remove_cvref_t<Shards>>() && ...));
    const auto used = use_.take();
    const auto& plan = program_.view();
    if (comm.local_count() != 1) detail::throw_several_devices(static_cast<std::size_t>(comm.local_count()));
    shards_.begin("strided_session", plan, program_.mesh_info(), comm.device(0), detail::check_given_array);
    (detail::for_each_leaf(shards, [&](auto& leaf) { shards_.add(leaf); }), ...);
    shards_.finish();
    session_.run(comm, shards_.inputs(), shards_.outputs());
    shards_.put_back();
  }
  /// Returns the bytes that the last call copied, in and out. Returns 0 if all shards were used in place.
  [[nodiscard]] std::int64_t copied_bytes() const { return shards_.copied_bytes(); }

 private:
  dynamic::program program_;
  dynamic::session session_;
  detail::taken_shards shards_;
  detail::exclusive_use use_;
};

}  // namespace gspmd
