// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/run/contract_round_ring.hpp"
#include "gspmd/detail/run/local_step.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"

/// The kernels that run on all devices of a communicator together.
namespace gspmd::detail::kernels {

/// Finds the shards of part k of a step, which may process several values together.
inline void find_shards(const plan_view& p, const plan_step& s, const devices_here& devices, int k = 0) {
  for (int d = 0; d < devices.count; ++d) {
    devices.from[d] = devices.memory[d].read(p.operand(s, k).where);
    devices.to[d] = devices.memory[d].write(p.result(s, k).where);
  }
}

template <class T, class Comm>
void move::run(const movement& m, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices) {
  find_shards(p, s, devices);
  if (writes_into_operand(s))
    for (int d = 0; d < devices.count; ++d) copy_operand(p, s, 1, devices.memory[d]);
  comm.template move<T>(*p.mesh, m, reinterpret_cast<const T* const*>(devices.from), reinterpret_cast<T* const*>(devices.to));
}

/// True if a communicator has the optional functions for lists of movements or reductions (see communicator). It must
/// hold one device.
template <class Comm, class Descriptor>
inline constexpr bool starts =
    requires(Comm& comm, const mesh_shape& mesh, span<const Descriptor> all, const float* const* in, float* const* out) {
      comm.start(mesh, all, in, out);
      comm.finish(mesh, all, in, out);
    };
template <class T, class Descriptor>
struct joint_buffers {
  const T* in[most_moved_together];
  T* out[most_moved_together];
  span<const Descriptor> all;

  joint_buffers(const inline_vec<Descriptor, most_moved_together>& of, const plan_view& p, const plan_step& s,
                const device_memory& device)
      : all(of.items, static_cast<std::size_t>(of.count)) {
    for (int k = 0; k < of.count; ++k) {
      in[k] = static_cast<const T*>(device.read(p.operand(s, k).where));
      out[k] = static_cast<T*>(device.write(p.result(s, k).where));
    }
  }
};
template <class T, class Comm>
void move_together::run(const joint_movements& all, const plan_view& p, const plan_step& s, Comm& comm,
                        const devices_here& devices) {
  start_move::run<T>(all, p, s, comm, devices);
  finish_move::run<T>(all, p, s, comm, devices);
}
template <class T, class Comm>
void start_move::run(const joint_movements& all, const plan_view& p, const plan_step& s, Comm& comm,
                     const devices_here& devices) {
  if constexpr (starts<Comm, movement>) {
    const joint_buffers<T, movement> buffers(all, p, s, devices.memory[0]);
    comm.template start<T>(*p.mesh, buffers.all, buffers.in, buffers.out);
  } else {
    for (int k = 0; k < all.count; ++k) {
      find_shards(p, s, devices, k);
      comm.template move<T>(*p.mesh, all[k], reinterpret_cast<const T* const*>(devices.from),
                            reinterpret_cast<T* const*>(devices.to));
    }
  }
}
template <class Base>
template <class T, class Descriptor, class Comm>
void ending<Base>::run(const inline_vec<Descriptor, most_moved_together>& all, const plan_view& p, const plan_step& s, Comm& comm,
                       const devices_here& devices) {
  if constexpr (starts<Comm, Descriptor>) {
    const joint_buffers<T, Descriptor> buffers(all, p, s, devices.memory[0]);
    comm.template finish<T>(*p.mesh, buffers.all, buffers.in, buffers.out);
  }
}

/// The element type of a reduction of values of type T: for complex T the type of the real and imaginary parts.
template <class T>
using reduced_part = element_t<part_of(dtype_of<T>())>;
/// True if a communicator has the optional function reduce_together (see communicator).
template <class Comm>
inline constexpr bool reduces_together =
    requires(Comm& comm, const mesh_shape& mesh, span<const reduction> all, const float* const* in, float* const* out) {
      comm.reduce_together(mesh, all, in, out);
    };
template <class T, class Comm>
void combine_together::run(const joint_reductions& all, const plan_view& p, const plan_step& s, Comm& comm,
                           const devices_here& devices) {
  using part = reduced_part<T>;
  if constexpr (reduces_together<Comm>) {
    const joint_buffers<part, reduction> buffers(all, p, s, devices.memory[0]);
    comm.template reduce_together<part>(*p.mesh, buffers.all, buffers.in, buffers.out);
  } else {
    for (int k = 0; k < all.count; ++k) {
      find_shards(p, s, devices, k);
      comm.template reduce<part>(*p.mesh, all[k], reinterpret_cast<const part* const*>(devices.from),
                                 reinterpret_cast<part* const*>(devices.to));
    }
  }
}
template <class T, class Comm>
void start_combine::run(const joint_reductions& all, const plan_view& p, const plan_step& s, Comm& comm,
                        const devices_here& devices) {
  if constexpr (starts<Comm, reduction>) {
    const joint_buffers<reduced_part<T>, reduction> buffers(all, p, s, devices.memory[0]);
    comm.template start<reduced_part<T>>(*p.mesh, buffers.all, buffers.in, buffers.out);
  } else {
    combine_together::run<T>(all, p, s, comm, devices);
  }
}

template <class T, class Comm>
void combine::run(const reduction& r, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices) {
  find_shards(p, s, devices);
  using part = reduced_part<T>;
  comm.template reduce<part>(*p.mesh, r, reinterpret_cast<const part* const*>(devices.from),
                             reinterpret_cast<part* const*>(devices.to));
}

}  // namespace gspmd::detail::kernels
