// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/error.hpp"

namespace gspmd {

/// A communicator holds some devices of a backend and carries out the communication of a plan among all devices.
///
///     int device_count() const           number of devices of the whole communicator
///     int local_count() const            number of devices that this object holds: 1 for threads and mpi, all for
///                                        simulated
///     int device(int i) const            id of its i-th device, 0 <= i < local_count()
///     void move(mesh, movement, in, out)       carries out a movement, also one with a map; in[i], out[i] are the
///                                        buffers of device(i)
///     void reduce(mesh, reduction, in, out)    carries out a reduction; in[i] == out[i] is allowed for an all_reduce
///     void barrier()                     waits for all devices
///     void start(mesh, movements, in, out), finish(the same)    optional, if an object holds one device: carry out a
///                                        list of movements over the same axes, movement k from in[k] to out[k], in one
///                                        message to each device. Between the two calls the device computes and does
///                                        not touch the buffers
///     void start(mesh, reductions, in, out), finish(the same)   optional: the same for reductions of one kind over the
///                                        same axes. A list with a single all_reduce may be in place. Several lists may
///                                        be started before the first list is finished
///     void go_on()                       optional: lets started collectives progress, without waiting. A program that
///                                        starts collectives calls it after each step that computes
///     void reduce_together(mesh, reductions, in, out)    optional, if an object holds one device: carries out
///                                        reductions of one kind over the same axes, k from in[k] to out[k], in one
///                                        message to each device
///     void move(mesh, movement, type, in, out)           optional: the same functions for an element type
///     void reduce(mesh, reduction, type, op, in, out)    that is known at run time. `in` and `out` are arrays of void
///     void start(mesh, movements, type, in, out)         pointers, and `op` combines rows (detail::row_combiner). A
///     void start(mesh, reductions, type, op, in, out)    program that is planned at run time compiles its collectives
///     void reduce_together(mesh, reductions, type, op, in, out)    once then, and not for each element type
///     void shift(mesh, ring, ahead, behind)    optional, for programs with limit_gather: each device of a ring gets
///                                        the buffer of its successor and, unless `behind` is null, the buffer of its
///                                        predecessor
///
/// Elements are float, double, std::int32_t, std::int64_t or bool. `in` and `out` are arrays with one pointer for
/// each local device, to buffers of the (padded) local extents. Buffers must not overlap, except for in == out.
///
/// **Communication.** `move` and `reduce` are collective over the groups of the descriptor's axes: all members of a
/// group call them in the same order. Each call, except for `start`, returns when the device's result is complete and
/// its input may be changed again. Reductions combine in the order of the members, so threads and simulated agree to
/// the bit. All members of a group get the same bits of an all_reduce, with any backend, because programs branch on
/// its result.
/// **Errors.** Each fault is reported as gspmd::error. If members call different collectives, the error names both.
/// **Threads.** An object belongs to the thread that runs its devices. Each thread or rank that `launch` starts has
/// its own object.
template <class C>
concept communicator =
    requires(C& comm, const C& held, const detail::mesh_shape& mesh, const detail::movement& m, const detail::reduction& r,
             const float* const* in, float* const* out, const bool* const* bool_in, bool* const* bool_out) {
      { held.device_count() } -> std::same_as<int>;
      { held.local_count() } -> std::same_as<int>;
      { held.device(0) } -> std::same_as<int>;
      { comm.move(mesh, m, in, out) } -> std::same_as<void>;
      { comm.move(mesh, m, bool_in, bool_out) } -> std::same_as<void>;
      { comm.reduce(mesh, r, in, out) } -> std::same_as<void>;
      { comm.reduce(mesh, r, bool_in, bool_out) } -> std::same_as<void>;
      { comm.barrier() } -> std::same_as<void>;
    };

namespace detail {

struct row_combiner;  // kernels/combine_rows.hpp

/// True if a communicator has each of its functions also for element types that are known at run time.
template <class Comm>
inline constexpr bool takes_types =
    requires(Comm& comm, const mesh_shape& mesh, const movement& m, const reduction& r, span<const reduction> all, dtype type,
             const row_combiner& op, const void* const* in, void* const* out, const float* const* from, float* const* to) {
      comm.move(mesh, m, type, in, out);
      comm.reduce(mesh, r, type, op, in, out);
      requires !requires { comm.start(mesh, all, from, to); } || requires { comm.start(mesh, all, type, op, in, out); };
      requires !requires { comm.reduce_together(mesh, all, from, to); } ||
                   requires { comm.reduce_together(mesh, all, type, op, in, out); };
    };

inline std::string counted(int n, const char* noun) { return std::to_string(n) + ' ' + noun + (n == 1 ? "" : "s"); }

inline void require_device_count(int available, int expected) {
  if (available == expected) return;
  throw error("the mesh has " + counted(expected, "device") + " but the communicator has " + counted(available, "rank") +
              "; start one rank for each device of the mesh, or give the mesh " + counted(available, "device"));
}

/// Returns f(), which is called before `backend` is launched. A backend whose processes make this call together has a
/// function agree(backend, failure). If one process has a failure, `agree` makes all processes throw, so that no
/// process waits for another process.
template <class Backend, class F>
auto before_launch(const Backend& backend, F f) {
  if constexpr (requires { agree(backend, static_cast<const error*>(nullptr)); }) {
    std::optional<std::invoke_result_t<F>> result;
    std::optional<error> failure;
    try {
      result.emplace(f());
    } catch (const error& e) {
      failure.emplace(e);
    } catch (const std::exception& e) {
      failure.emplace(e.what());
    }
    agree(backend, failure ? &*failure : nullptr);
    return *std::move(result);
  } else {
    return f();
  }
}

}  // namespace detail

struct mpi;  // include gspmd/mpi.hpp
template <class F>
void launch(const mpi& backend, int devices, F&& f);

/// Throws gspmd::error on every device, before any communication, unless `comm` has `expected` devices.
template <communicator C>
void require_devices(const C& comm, int expected) {
  detail::require_device_count(comm.device_count(), expected);
}

}  // namespace gspmd
