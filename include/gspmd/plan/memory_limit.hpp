// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/program/mesh.hpp"

namespace gspmd {

/// A mesh whose devices hold at most `Bytes` bytes each. Pass it to `compile` instead of the mesh. The limit covers
/// inputs, outputs and all values between them, as `peak_bytes_per_device` counts them.
///
/// If a plan holds more, the planner plans the program again and trades time for memory, in this order. It takes the
/// first plan that fits.
///  1. Gathered inputs are not kept. Each user gathers them again, as in fully sharded data parallelism. The second
///     gathers add to the traffic.
///  2. Inputs without an annotation are split over axes that have no other use for them.
///  3. States are split along several dims. Einsums take gathered operands in parts that rotate around a ring of
///     devices. The threshold is a quarter, then a 16th, then a 64th of `Bytes`.
///  4. States (inputs with next values) get the sharding that the computation of their next values has.
///
/// If a step of this list leaves memory unused, only some inputs change: first the inputs that are read least often,
/// then the largest. A bisection finds the number of inputs that change, in about seven more plans.
/// Arrays belong to the mesh itself. At run time: dynamic::mesh::within, which also recomputes and gathers values
/// between inputs and outputs. explain_memory (report/memory.hpp) lists the changes and their times.
///
/// **Errors.** Compile error: no known plan fits. The text states the smallest known peak.
/// **Example.**
///
///     using step = compile<train, within<pod, 512 * MiB>, in<float, dims<64, 4096>, split<"data", _>>, ...>;
template <class Mesh, std::int64_t Bytes>
struct within {
  static_assert(Bytes > 0, "gspmd: within: bytes is not positive; write a positive number, or leave it out");
  static constexpr detail::mesh_info info = [] {
    auto m = Mesh::info;
    m.request.most_memory = Bytes;
    return m;
  }();
  static constexpr int device_count = Mesh::device_count;
};

namespace detail {

template <class Mesh, std::int64_t Bytes>
struct changed_mesh<within<Mesh, Bytes>> : std::type_identity<Mesh> {};

}  // namespace detail
}  // namespace gspmd
