// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/passes/list/search_pass.hpp"
#include "gspmd/mesh.hpp"

namespace gspmd {

/// A mesh for which better plans are searched for: in the place of a mesh, for `compile`. Without it a plan is the best of those for what
/// completion found and, of programs of up to 32 values, for a few simple rules. With it that plan is changed, a value at a time, as long
/// as that helps: where 17 microseconds or more of it are no work, or work that devices repeat. Results are the same but for the last bits
/// of sums, and compiling takes longer. Arrays are those of the mesh itself. At run time: dynamic::mesh::searched.
///
///     using step = compile<layer, searched<pod>, in<float, dims<64, 512>, split<"data", _>>, ...>;
///     static_assert(step::traffic.bytes < compile<layer, pod, in<...>...>::traffic.bytes);   // what the search gains
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
inline constexpr bool accepts_meshes<searched<Mesh>> = accepts_meshes<Mesh>;

template <class Mesh, class Of>
inline constexpr bool is_view_of<Mesh, searched<Of>> = std::is_same_v<Mesh, searched<Of>> || is_view_of<Mesh, Of>;

}  // namespace detail
}  // namespace gspmd
