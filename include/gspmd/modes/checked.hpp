// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/program/mesh.hpp"

namespace gspmd {

/// A checked mesh: after each step, a run compares the data that must be equal on several devices. Pass it to `compile`
/// instead of the mesh.
///
/// The compared data are the inputs and values whose types are invariant, replica or constant along an axis, also in
/// manual regions. In a program without types, they are the values that no axis splits. Bits are compared, except that
/// 0 equals -0 and every NaN equals every NaN. The program computes and sends the same as without the check, but each
/// operator stores its result, so a run uses more memory. Nothing is sent while a device computes. At run time use
/// dynamic::mesh::checked.
///
/// **Communication.** For each such value one all_gather of 8 bytes per device along these axes. No plan counts these
/// bytes.
/// **Errors.** If devices differ, gspmd::error on all devices of the group. The text names the operator and its line,
/// or the number of the input, and the first element that differs. It also names two devices that differ along one
/// axis, with their mesh coordinates and their values.
/// **Example.**
///
///     using step = compile<train, checked<pod>, x, w>;      // finds a kernel or an input that violates its type
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
struct changed_mesh<checked<Mesh>> : std::type_identity<Mesh> {};

}  // namespace detail
}  // namespace gspmd
