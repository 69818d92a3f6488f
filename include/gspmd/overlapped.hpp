// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/passes/order/hide_collectives.hpp"
#include "gspmd/mesh.hpp"

namespace gspmd {

/// A mesh whose devices compute while collectives are under way: in the place of a mesh, for `compile`. A collective is started where what it
/// sends is there, no earlier than the work beside it takes its time on the network of the plan (on_network.hpp; the default one unless it
/// is named), and finished where its result is read; what reads it waits while other work goes on. Weights that are split are gathered
/// ahead of the layer that takes them, gradients reduced while those of the layers before are computed (GSPMD 4.6 hides halos likewise).
///
/// Plans send what they sent, and results keep their bits, but for reductions between nodes, where MPI's own calls do the blocking ones. A collective
/// under way takes memory: `peak_bytes_per_device` counts it. It gains between nodes; where devices share memory a collective is work
/// of the processor itself, and nothing is hidden. At run time: dynamic::overlapped(mesh) (gspmd/dynamic/overlapped.hpp).
///
///     using step = compile<train, overlapped<pod>, in<float, dims<64, 4096>, split<"data", _>>, ...>;
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
inline constexpr bool accepts_meshes<overlapped<Mesh>> = accepts_meshes<Mesh>;
template <class Mesh>
inline constexpr bool is_mesh<overlapped<Mesh>> = is_mesh<Mesh>;

template <class Mesh, class Of>
inline constexpr bool is_view_of<Mesh, overlapped<Of>> = std::is_same_v<Mesh, overlapped<Of>> || is_view_of<Mesh, Of>;

}  // namespace detail
}  // namespace gspmd
