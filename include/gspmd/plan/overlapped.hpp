// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/passes/order/hide_collectives.hpp"
#include "gspmd/program/mesh.hpp"

namespace gspmd {

/// A mesh whose devices compute while collectives are under way. Pass it to `compile` instead of the mesh.
///
/// A collective starts after its operand exists, and finishes before the first user of its result. The work between
/// start and finish takes at most about as long as the collective. Its time is estimated on the network of the plan
/// (on_network.hpp, or the default network). Users of the result wait while other work continues. Split weights are
/// gathered before the layer that uses them. Gradients are reduced while the gradients of earlier layers are computed.
///
/// Plans send the same bytes. Results have the same bits, except for reductions between nodes, because MPI's own calls
/// do the blocking ones. A collective under way needs memory, which `peak_bytes_per_device` includes.
/// Overlap saves time between nodes. If devices share memory, the processor itself does the work of a collective, and
/// nothing is hidden.
/// At run time: dynamic::overlapped(mesh) (gspmd/dynamic/overlapped.hpp).
///
/// **Example.**
///
///     using step = compile<train, overlapped<pod>, in<float, dims<64, 4096>, split<"data", _>>, ...>;
///
/// **Source.** GSPMD, section 4.6, hides halos in the same way.
template <class Mesh>
struct overlapped {
  static constexpr detail::mesh_info info = [] {
    auto m = Mesh::info;
    m.request.hide = detail::hide_collectives;
    return m;
  }();
  static constexpr int device_count = Mesh::device_count;
};

namespace detail {

template <class Mesh>
struct changed_mesh<overlapped<Mesh>> : std::type_identity<Mesh> {};

}  // namespace detail
}  // namespace gspmd
