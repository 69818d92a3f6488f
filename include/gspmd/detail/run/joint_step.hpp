// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/run/contract_round_ring.hpp"
#include "gspmd/detail/run/local_step.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"

/// The kernels that work on all devices of a communicator together.
namespace gspmd::detail::kernels {

/// Of part k of a step that several values go through together.
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

/// Optional functions of a communicator that holds one device: see communicator.
template <class Comm>
inline constexpr bool starts_moves =
    requires(Comm& comm, const mesh_shape& mesh, span<const movement> all, const float* const* in, float* const* out) {
      comm.start(mesh, all, in, out);
      comm.finish(mesh, all, in, out);
    };
template <class T>
struct joint_buffers {
  const T* in[most_moved_together];
  T* out[most_moved_together];
  span<const movement> movements;

  joint_buffers(const joint_movements& all, const plan_view& p, const plan_step& s, const device_memory& device)
      : movements(all.items, static_cast<std::size_t>(all.count)) {
    for (int k = 0; k < all.count; ++k) {
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
  if constexpr (starts_moves<Comm>) {
    const joint_buffers<T> buffers(all, p, s, devices.memory[0]);
    comm.template start<T>(*p.mesh, buffers.movements, buffers.in, buffers.out);
  } else {
    for (int k = 0; k < all.count; ++k) {
      find_shards(p, s, devices, k);
      comm.template move<T>(*p.mesh, all[k], reinterpret_cast<const T* const*>(devices.from),
                            reinterpret_cast<T* const*>(devices.to));
    }
  }
}
template <class T, class Comm>
void finish_move::run(const joint_movements& all, const plan_view& p, const plan_step& s, Comm& comm,
                      const devices_here& devices) {
  if constexpr (starts_moves<Comm>) {
    const joint_buffers<T> buffers(all, p, s, devices.memory[0]);
    comm.template finish<T>(*p.mesh, buffers.movements, buffers.in, buffers.out);
  }
}

/// Optional: see communicator.
template <class Comm>
inline constexpr bool reduces_together =
    requires(Comm& comm, const mesh_shape& mesh, span<const reduction> all, const float* const* in, float* const* out) {
      comm.reduce_together(mesh, all, in, out);
    };
template <class T, class Comm>
void combine_together::run(const joint_reductions& all, const plan_view& p, const plan_step& s, Comm& comm,
                           const devices_here& devices) {
  using part = element_t<part_of(dtype_of<T>())>;
  if constexpr (reduces_together<Comm>) {
    const part* in[most_moved_together];
    part* out[most_moved_together];
    for (int k = 0; k < all.count; ++k) {
      in[k] = static_cast<const part*>(devices.memory[0].read(p.operand(s, k).where));
      out[k] = static_cast<part*>(devices.memory[0].write(p.result(s, k).where));
    }
    comm.template reduce_together<part>(*p.mesh, span(all.items, static_cast<std::size_t>(all.count)), in, out);
  } else {
    for (int k = 0; k < all.count; ++k) {
      find_shards(p, s, devices, k);
      comm.template reduce<part>(*p.mesh, all[k], reinterpret_cast<const part* const*>(devices.from),
                                 reinterpret_cast<part* const*>(devices.to));
    }
  }
}

template <class T, class Comm>
void combine::run(const reduction& r, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices) {
  find_shards(p, s, devices);
  using part = element_t<part_of(dtype_of<T>())>;
  comm.template reduce<part>(*p.mesh, r, reinterpret_cast<const part* const*>(devices.from),
                             reinterpret_cast<part* const*>(devices.to));
}

}  // namespace gspmd::detail::kernels
