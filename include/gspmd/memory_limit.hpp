// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/mesh.hpp"

namespace gspmd {

/// A mesh whose devices hold so many bytes each at most: inputs, outputs and everything between them, as `peak_bytes_per_device` counts
/// it. In the place of a mesh, for `compile`. A program that would hold more is planned again and gives up time for memory: inputs that
/// were gathered are not kept but gathered again (fully sharded data parallelism: what crosses the network grows by what the second
/// gathers send), then inputs that nobody annotated are split by axes that have no other use for them, then einsums take gathered operands
/// in parts, round a ring of devices, from a quarter, a 16th, a 64th of the memory on, and at last states (inputs with next values) lie as their
/// next values are computed. Of what is gathered again or split no more is given up than it takes: where all of it fits with room to spare, the
/// inputs that are read least often, and of these the largest, give way, as many as have to, and the others stay; some seven plans more look
/// for that number. The first plan that fits is taken. Arrays are those of the mesh itself. At run time: dynamic::mesh::within, which computes
/// and gathers values again as well; explain_memory (report/memory.hpp) says what was given up, and for what time.
///
///     using step = compile<train, within<pod, 512 * MiB>, in<float, dims<64, 4096>, split<"data", _>>, ...>;
///
/// A compile error where no plan is known that fits; it says how much the one holds that holds least.
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
inline constexpr bool accepts_meshes<within<Mesh, Bytes>> = accepts_meshes<Mesh>;
template <class Mesh, std::int64_t Bytes>
inline constexpr bool is_mesh<within<Mesh, Bytes>> = is_mesh<Mesh>;

template <class Mesh, class Of, std::int64_t Bytes>
inline constexpr bool is_view_of<Mesh, within<Of, Bytes>> = std::is_same_v<Mesh, within<Of, Bytes>> || is_view_of<Mesh, Of>;

}  // namespace detail
}  // namespace gspmd
