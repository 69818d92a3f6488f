// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd {

/// All devices of a mesh in the calling thread, which runs them in lockstep. Use it in tests, and for meshes larger
/// than the machine. With one device it is the serial backend.
///
/// **Threads.** The object holds only a number, so any number of threads may use it. Each thread needs its own step and
/// arrays.
class simulated_communicator {
 public:
  static constexpr bool shares_memory = true;  // a device may write the caller's memory

  /// Requires `devices` >= 1.
  explicit simulated_communicator(int devices) : devices_(devices) {}

  [[nodiscard]] int device_count() const { return devices_; }
  [[nodiscard]] int local_count() const { return devices_; }
  [[nodiscard]] int device(int i) const { return i; }
  void barrier() {}

  template <class T>
  void move(const detail::mesh_shape& mesh, const detail::movement& m, const T* const* in, T* const* out) {
    move_elements(mesh, m, sizeof(T), in, out);
  }
  void move(const detail::mesh_shape& mesh, const detail::movement& m, dtype type, const void* const* in, void* const* out) {
    move_elements(mesh, m, detail::bytes_of(type), in, out);
  }

  template <class T>
  void reduce(const detail::mesh_shape& mesh, const detail::reduction& r, const T* const* in, T* const* out) {
    reduce_elements(mesh, r, detail::combiner_of<T>(r.reduced_by), in, out);
  }
  void reduce(const detail::mesh_shape& mesh, const detail::reduction& r, dtype, const detail::row_combiner& op,
              const void* const* in, void* const* out) {
    reduce_elements(mesh, r, op, in, out);
  }

  void shift(const detail::mesh_shape& mesh, const detail::ring& r, const detail::ring_buffers& ahead,
             const detail::ring_buffers* behind) {
    for (int d = 0; d < devices_; ++d) {
      const auto me = mesh.coordinates_of(d);
      const auto take = [&](const detail::ring_buffers& buffers, int by) {
        const auto peer = detail::group_member(mesh, r.mask(), me, r.member_ahead(mesh, me, by));
        std::memcpy(buffers.to(d), buffers.from(mesh.device_at(peer)), static_cast<std::size_t>(r.bytes));
      };
      take(ahead, 1);
      if (behind != nullptr) take(*behind, -1);
    }
  }

  /// Every device sends each device a block of elements. The blocks in in[d] follow each other: sent[d][k] elements for
  /// device k. Device d stores the blocks that it receives in out[d] in the same order: received[d][k] elements from
  /// device k.
  template <class T>
  void exchange(const T* const* in, const std::int64_t* const* sent, T* const* out, const std::int64_t* const* received) {
    for (int d = 0; d < devices_; ++d) {
      T* to = out[d];
      for (int k = 0; k < devices_; ++k) {
        const T* from = in[k];
        for (int before = 0; before < d; ++before) from += sent[k][before];
        std::copy_n(from, received[d][k], to);
        to += received[d][k];
      }
    }
  }

 private:
  template <class From, class To>
  void move_elements(const detail::mesh_shape& mesh, const detail::movement& m, std::int64_t bytes_per_elem, From* in, To* out) {
    for (int d = 0; d < devices_; ++d) {
      const auto me = mesh.coordinates_of(d);
      detail::move_from_peers(mesh, m, me, by_member(mesh, m.axes, me, in), out[d], bytes_per_elem);
    }
  }
  template <class From, class To>
  void reduce_elements(const detail::mesh_shape& mesh, const detail::reduction& r, const detail::row_combiner& op, From* in,
                       To* out) {
    const bool alone = mesh.size_of(r.axes) == 1;
    for (int d = 0; d < devices_; ++d) {
      const auto me = mesh.coordinates_of(d);
      if (alone) detail::reduce_alone(mesh, r, me, in[d], out[d], op.elem_bytes);
      else detail::reduce_from_peers(op, mesh, r, me, by_member(mesh, r.axes, me, in), by_member(mesh, r.axes, me, out));
    }
  }
  /// Returns a function from the number of a member to its buffer.
  template <class Buffer>
  static auto by_member(const detail::mesh_shape& mesh, detail::axis_mask axes, const detail::coordinates& me,
                        const Buffer* buffers) {
    return
        [&mesh, axes, &me, buffers](std::int64_t j) { return buffers[mesh.device_at(detail::group_member(mesh, axes, me, j))]; };
  }

  int devices_;
};

/// Backend: a single device, in the calling thread.
struct serial {};
/// Backend: any number of devices, all in the calling thread.
struct simulated {};

/// Calls `f(comm)` once, with a communicator that holds one device.
///
/// **Errors.** If the mesh has more than one device, gspmd::error.
template <class F>
void launch(serial, int devices, F&& f) {
  simulated_communicator comm(1);
  require_devices(comm, devices);
  f(comm);
}

/// Calls `f(comm)` once, with a communicator that holds all `devices`.
template <class F>
void launch(simulated, int devices, F&& f) {
  simulated_communicator comm(devices);
  f(comm);
}

}  // namespace gspmd
