// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/mesh.hpp"

namespace gspmd {

/// A mesh on which a run looks, after each step, whether devices hold the same of what is the same on all of them: in the place of a mesh,
/// for `compile`. These are the inputs and values that types call invariant, replica or constant along an axis, in manual regions too, and
/// those that no axis splits in a program without types. What is sent and computed is the same, but that each operator leaves what it gives
/// in memory, of which a run takes more, and that nothing is sent while a device computes. At run time: dynamic::mesh::checked.
///
///     using step = compile<train, checked<pod>, x, w>;      // to find a kernel or an input that does not do what its type says
///
/// It sends 8 bytes of each device for each such value, an all_gather along these axes that counts in no plan. A gspmd::error where devices
/// differ, on all devices of the group: the operator and its line, or the number of the input, the first element that differs, two
/// devices that differ along one axis, their places on the mesh and what they hold. Bits are compared, but that 0 is -0 and any NaN is
/// another one.
template <class Mesh>
struct checked {
  static constexpr detail::mesh_info info = [] {
    auto m = Mesh::info;
    m.request.is_checked = true;
    return m;
  }();
  static constexpr int device_count = Mesh::device_count;
};

namespace detail {

template <class Mesh>
inline constexpr bool accepts_meshes<checked<Mesh>> = accepts_meshes<Mesh>;
template <class Mesh>
inline constexpr bool is_mesh<checked<Mesh>> = is_mesh<Mesh>;

template <class Mesh, class Of>
inline constexpr bool is_view_of<Mesh, checked<Of>> = std::is_same_v<Mesh, checked<Of>> || is_view_of<Mesh, Of>;

}  // namespace detail
}  // namespace gspmd
