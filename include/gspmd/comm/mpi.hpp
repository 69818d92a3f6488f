// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/exec/mpi_call.hpp"  // first: it says how to include mpi.h

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/exec/collective.hpp"
#include "gspmd/detail/exec/descriptor_cache.hpp"
#include "gspmd/detail/exec/mpi_exchange.hpp"
#include "gspmd/detail/exec/mpi_group.hpp"
#include "gspmd/error.hpp"

namespace gspmd {

struct mpi_options {
  /// Reduce through memory that the processes share, in groups that lie on one node.
  bool shared_memory = true;
  /// The most elements given to one MPI call.
  std::int64_t largest_count = INT_MAX;
};

/// One device per MPI process; the device's id is its rank.
///
/// Reductions in groups that lie on one node go through shared memory, and combine in the order of the members as those of
/// the other backends do; across nodes MPI chooses the order, and what the maximum of a NaN is.
/// Works on a duplicate of the communicator it is given, which reports errors instead of ending the program; they arrive
/// as gspmd::error with MPI's text. MPI_THREAD_SINGLE is enough. One communicator per group of axes is made when that
/// group first communicates, and kept; nothing is allocated after the first collective of a kind and size.
class mpi_communicator {
 public:
  /// Collective over `comm`, after MPI_Init.
  explicit mpi_communicator(MPI_Comm comm, mpi_options options = {}) {
    int is_initialized = 0;
    MPI_Initialized(&is_initialized);
    if (is_initialized == 0 || is_finalized())
      throw error("the mpi backend needs MPI to be running: call MPI_Init before and MPI_Finalize after");
    detail::check_mpi(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup", -1);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &work_.rank);
    MPI_Comm_size(comm_, &count_);
    work_.largest_count = options.largest_count;
    work_.shared_memory = options.shared_memory;
    work_.oversubscribed = options.shared_memory && detail::is_oversubscribed(comm_, work_.rank);
  }
  mpi_communicator(const mpi_communicator&) = delete;
  mpi_communicator& operator=(const mpi_communicator&) = delete;
  /// Collective, if it is to be before MPI_Finalize; after it nothing can be freed any more.
  ~mpi_communicator() {
    if (is_finalized()) {
      for (auto& group : groups_) static_cast<void>(group.release());
      for (auto& memory : work_.memories) static_cast<void>(memory.release());
      return;
    }
    groups_.clear();
    work_.memories.clear();
    MPI_Comm_free(&comm_);
  }

  [[nodiscard]] int device_count() const { return count_; }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int) const { return work_.rank; }
  /// Tells this communicator from every other one of this process.
  [[nodiscard]] std::uint64_t serial() const { return serial_; }
  void barrier() { detail::check_mpi(MPI_Barrier(comm_), "MPI_Barrier", work_.rank); }

  /// Memory that the other processes of the node can read in place: collectives between buffers in it cost what they cost
  /// between threads, and MPI carries nothing. Aligned to a cache line, kept as long as the communicator. Collective over
  /// all processes, which ask for the same size.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    work_.memories.push_back(std::make_unique<detail::node_memory>(comm_, work_.rank, bytes));
    return work_.memories.back()->mine();
  }

  template <class T>
  void move(const detail::mesh_shape& mesh, const detail::movement& m, const T* const* in, T* const* out) {
    const auto& known =
        movements_.find(mesh, m, [&] { return routed<detail::movement_route>(group_over(mesh, m.axes), mesh, m); });
    known.group->move(mesh, m, known.route, in[0], out[0]);
  }

  template <class T>
  void reduce(const detail::mesh_shape& mesh, const detail::reduction& r, const T* const* in, T* const* out) {
    const auto& known =
        reductions_.find(mesh, r, [&] { return routed<detail::reduction_route>(group_over(mesh, r.axes), mesh, r); });
    known.group->reduce(mesh, r, known.route, in[0], out[0]);
  }

  void shift(const detail::mesh_shape& mesh, const detail::ring& r, const detail::ring_buffers& ahead,
             const detail::ring_buffers* behind) {
    group_over(mesh, r.mask()).shift(mesh, r, ahead, behind);
  }

  /// Every device sends every device a block of its own size: of in[0], sent[0][k] elements go to device k, one block after the
  /// other; received[0][k] elements from device k arrive in out[0]. Collective over all devices.
  template <class T>
  void exchange(const T* const* in, const std::int64_t* const* sent, T* const* out, const std::int64_t* const* received) {
    detail::mpi_exchange(comm_, work_.rank, work_.largest_count, in[0], sent[0], out[0], received[0]);
  }

 private:
  static std::uint64_t next_serial() {
    static std::uint64_t last = 0;
    return ++last;
  }
  static bool is_finalized() {
    int flag = 0;
    MPI_Finalized(&flag);
    return flag != 0;
  }

  template <class Route>
  struct routed {
    detail::mpi_group* group;
    Route route;
    template <class Descriptor>
    routed(detail::mpi_group& over, const detail::mesh_shape& mesh, const Descriptor& d)
        : group(&over), route(over.new_route(mesh, d)) {}
  };
  detail::mpi_group& group_over(const detail::mesh_shape& mesh, detail::axis_mask axes) {
    for (const auto& known : groups_)
      if (known->is_over(mesh, axes)) return *known;
    groups_.push_back(std::make_unique<detail::mpi_group>(comm_, mesh, axes, work_));
    return *groups_.back();
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int count_ = 0;
  std::uint64_t serial_ = next_serial();
  detail::mpi_workspace work_{};
  std::vector<std::unique_ptr<detail::mpi_group>> groups_;
  detail::descriptor_cache<detail::movement, routed<detail::movement_route>> movements_;
  detail::descriptor_cache<detail::reduction, routed<detail::reduction_route>> reductions_;
};

/// Backend: one device per process of `comm`. MPI_Init and MPI_Finalize are the caller's.
struct mpi {
  MPI_Comm comm = MPI_COMM_WORLD;
  mpi_options options = {};
};

/// Calls `f(comm)` once on every process; collective over `backend.comm`. Throws gspmd::error, alike on all processes,
/// unless there are `devices` of them. What `f` throws on one process cannot reach those that wait for it: its text goes to
/// stderr and MPI_Abort ends them all. Alone, a process just throws it.
template <class F>
void launch(mpi backend, int devices, F&& f) {
  mpi_communicator comm(backend.comm, backend.options);
  require_devices(comm, devices);
  if (devices == 1) return static_cast<void>(f(comm));
  const auto give_up = [&](const error& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    std::fflush(stderr);
    MPI_Abort(backend.comm, 1);
  };
  try {
    f(comm);
  } catch (const error& failure) {
    give_up(failure.rank() < 0 ? failure.with_rank(comm.device(0)) : failure);
  } catch (const std::exception& failure) {
    give_up(error(failure.what(), comm.device(0)));
  } catch (...) {
    give_up(error("an exception that is not a std::exception", comm.device(0)));
  }
}

}  // namespace gspmd
