// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/passes/list/search_pass.hpp"
#include "gspmd/program/mesh.hpp"

namespace gspmd {

/// A mesh whose plans are searched for. Pass it to `compile` instead of the mesh.
///
/// Without it the planner takes the best of a few plans: the plan of completion and, for programs of up to 32 values,
/// the plans of a few rules. With it the planner also changes the sharding of single values as long as the time falls.
/// It searches only if communication and repeated work take at least 1 microsecond. Results differ at most in the last
/// bits of sums. Compilation takes longer. Arrays belong to the mesh itself. At run time: dynamic::mesh::searched.
///
/// **Example.**
///
///     using step = compile<layer, searched<pod>, in<float, dims<64, 512>, split<"data", _>>, ...>;
///     static_assert(step::traffic.bytes < compile<layer, pod, in<...>...>::traffic.bytes);   // the gain of the search
template <class Mesh>
struct searched {
  static constexpr detail::mesh_info info = [] {
    auto m = Mesh::info;
    m.request.is_searched = true;
    return m;
  }();
  static constexpr int device_count = Mesh::device_count;
};

namespace detail {

template <class Mesh>
struct changed_mesh<searched<Mesh>> : std::type_identity<Mesh> {};

}  // namespace detail
}  // namespace gspmd
