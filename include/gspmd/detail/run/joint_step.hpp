// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/run/contract_round_ring.hpp"
#include "gspmd/detail/run/local_step.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"

/// What the kernels do on all devices of a communicator together.
namespace gspmd::detail::kernels {

inline void find_shards(const plan_view& p, const plan_step& s, const devices_here& devices) {
  for (int d = 0; d < devices.count; ++d) {
    devices.from[d] = devices.memory[d].read(p.operand(s, 0).where);
    devices.to[d] = devices.memory[d].write(p.result(s).where);
  }
}

template <class T, class Comm>
void move::run(const movement& m, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices) {
  find_shards(p, s, devices);
  if (writes_into_operand(s))
    for (int d = 0; d < devices.count; ++d) copy_operand(p, s, 1, devices.memory[d]);
  comm.template move<T>(*p.mesh, m, reinterpret_cast<const T* const*>(devices.from), reinterpret_cast<T* const*>(devices.to));
}

template <class Comm>
inline constexpr bool starts_moves =
    requires(Comm& comm, const mesh_shape& mesh, const movement& m, const float* const* in, float* const* out) {
      comm.start(mesh, m, in, out);
      comm.finish(mesh, m, in, out);
    };
template <class T, class Comm>
void start_move::run(const movement& m, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices) {
  find_shards(p, s, devices);
  const auto* const from = reinterpret_cast<const T* const*>(devices.from);
  auto* const to = reinterpret_cast<T* const*>(devices.to);
  if constexpr (starts_moves<Comm>) comm.template start<T>(*p.mesh, m, from, to);
  else comm.template move<T>(*p.mesh, m, from, to);
}
template <class T, class Comm>
void finish_move::run(const movement& m, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices) {
  if constexpr (starts_moves<Comm>) {
    find_shards(p, s, devices);
    comm.template finish<T>(*p.mesh, m, reinterpret_cast<const T* const*>(devices.from), reinterpret_cast<T* const*>(devices.to));
  }
}

template <class T, class Comm>
void combine::run(const reduction& r, const plan_view& p, const plan_step& s, Comm& comm, const devices_here& devices) {
  find_shards(p, s, devices);
  comm.template reduce<T>(*p.mesh, r, reinterpret_cast<const T* const*>(devices.from), reinterpret_cast<T* const*>(devices.to));
}

}  // namespace gspmd::detail::kernels
