// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/kernels/combine_rows.hpp"
#include "gspmd/detail/run/contract_round_ring.hpp"
#include "gspmd/detail/run/local_step.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/communicator.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"

/// The kernels that run on all devices of a communicator together.
namespace gspmd::detail::kernels {

/// The element type of a reduction of values of type T: for complex T the type of the real and imaginary parts.
template <class T>
struct reduced_part_of {
  using type = element_t<part_of(dtype_of<T>())>;
};
template <>
struct reduced_part_of<type_of_step> {
  using type = type_of_step;
};
template <class T>
using reduced_part = typename reduced_part_of<T>::type;

/// Returns the code that combines rows of the elements of a step.
template <class T>
row_combiner combiner_for(const plan_step& s, monoid kind) {
  if constexpr (std::is_same_v<T, type_of_step>) return combiner_at(part_of(s.type), kind);
  else return combiner_of<reduced_part<T>>(kind);
}

/// Finds the shards of part k of a step, which may process several values together.
inline void find_shards(const plan_view& p, const plan_step& s, const devices_here& devices, int k = 0) {
  for (int d = 0; d < devices.count; ++d) {
    devices.from[d] = devices.memory[d].read(p.operand(s, k).where);
    devices.to[d] = devices.memory[d].write(p.result(s, k).where);
  }
}

template <class T, class Comm>
void move_shards(const movement& m, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices) {
  if constexpr (takes_types<Comm>) comm.move(*p.mesh, m, s.type, devices.from, devices.to);
  else
    comm.template move<T>(*p.mesh, m, reinterpret_cast<const T* const*>(devices.from), reinterpret_cast<T* const*>(devices.to));
}
template <class T, class Comm>
void reduce_shards(const reduction& r, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices) {
  if constexpr (takes_types<Comm>)
    comm.reduce(*p.mesh, r, part_of(s.type), combiner_for<T>(s, r.reduced_by), devices.from, devices.to);
  else
    comm.template reduce<reduced_part<T>>(*p.mesh, r, reinterpret_cast<const reduced_part<T>* const*>(devices.from),
                                          reinterpret_cast<reduced_part<T>* const*>(devices.to));
}

template <class T, class Comm>
void move::run(const movement& m, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices) {
  find_shards(p, s, devices);
  if (writes_into_operand(s))
    for (int d = 0; d < devices.count; ++d) copy_operand(p, s, 1, devices.memory[d]);
  move_shards<T>(m, p, s, comm, devices);
}

/// True if a communicator has the optional functions for lists of movements or reductions (see communicator). It must
/// hold one device.
template <class Comm, class Descriptor>
inline constexpr bool starts =
    requires(Comm& comm, const mesh_shape& mesh, span<const Descriptor> all, const float* const* in, float* const* out) {
      comm.start(mesh, all, in, out);
      comm.finish(mesh, all, in, out);
    };
/// The buffers of a step with a list of movements or reductions. T is void if the communicator takes types.
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
template <class T, class Comm, class Descriptor>
using buffers_of = joint_buffers<std::conditional_t<takes_types<Comm>, void, T>, Descriptor>;

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
    const buffers_of<T, Comm, movement> buffers(all, p, s, devices.memory[0]);
    if constexpr (takes_types<Comm>) comm.start(*p.mesh, buffers.all, s.type, buffers.in, buffers.out);
    else comm.template start<T>(*p.mesh, buffers.all, buffers.in, buffers.out);
  } else {
    for (int k = 0; k < all.count; ++k) {
      find_shards(p, s, devices, k);
      move_shards<T>(all[k], p, s, comm, devices);
    }
  }
}
template <class Base>
template <class T, class Descriptor, class Comm>
void ending<Base>::run(const inline_vec<Descriptor, most_moved_together>& all, const plan_view& p, const plan_step& s, Comm& comm,
                       const devices_here& devices) {
  if constexpr (starts<Comm, Descriptor>) {
    const buffers_of<T, Comm, Descriptor> buffers(all, p, s, devices.memory[0]);
    comm.finish(*p.mesh, buffers.all, buffers.in, buffers.out);
  }
}

/// True if a communicator has the optional function reduce_together (see communicator).
template <class Comm>
inline constexpr bool reduces_together =
    requires(Comm& comm, const mesh_shape& mesh, span<const reduction> all, const float* const* in, float* const* out) {
      comm.reduce_together(mesh, all, in, out);
    };
template <class T, class Comm>
void combine_together::run(const joint_reductions& all, const plan_view& p, const plan_step& s, Comm& comm,
                           const devices_here& devices) {
  if constexpr (reduces_together<Comm>) {
    const buffers_of<reduced_part<T>, Comm, reduction> buffers(all, p, s, devices.memory[0]);
    if constexpr (takes_types<Comm>)
      comm.reduce_together(*p.mesh, buffers.all, part_of(s.type), combiner_for<T>(s, all[0].reduced_by), buffers.in, buffers.out);
    else comm.template reduce_together<reduced_part<T>>(*p.mesh, buffers.all, buffers.in, buffers.out);
  } else {
    for (int k = 0; k < all.count; ++k) {
      find_shards(p, s, devices, k);
      reduce_shards<T>(all[k], p, s, comm, devices);
    }
  }
}
template <class T, class Comm>
void start_combine::run(const joint_reductions& all, const plan_view& p, const plan_step& s, Comm& comm,
                        const devices_here& devices) {
  if constexpr (starts<Comm, reduction>) {
    const buffers_of<reduced_part<T>, Comm, reduction> buffers(all, p, s, devices.memory[0]);
    if constexpr (takes_types<Comm>)
      comm.start(*p.mesh, buffers.all, part_of(s.type), combiner_for<T>(s, all[0].reduced_by), buffers.in, buffers.out);
    else comm.template start<reduced_part<T>>(*p.mesh, buffers.all, buffers.in, buffers.out);
  } else {
    combine_together::run<T>(all, p, s, comm, devices);
  }
}

template <class T, class Comm>
void combine::run(const reduction& r, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices) {
  find_shards(p, s, devices);
  reduce_shards<T>(r, p, s, comm, devices);
}

}  // namespace gspmd::detail::kernels
