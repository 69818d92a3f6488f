// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/dynamic/program.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/extend/edge.hpp"
#include "gspmd/external/whole.hpp"

/// Programs that are compiled at run time, on whole arrays in external memory with any strides. For shards in external
/// memory, call a dynamic::session (external/shards.hpp).
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

}  // namespace gspmd
