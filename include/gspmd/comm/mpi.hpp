// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/mpi/call.hpp"  // first: it says how to include mpi.h

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/descriptor_cache.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/detail/transport/mpi/exchange.hpp"
#include "gspmd/detail/transport/mpi/group.hpp"
#include "gspmd/detail/transport/mpi/node_memory.hpp"
#include "gspmd/detail/transport/mpi/ranks.hpp"
#include "gspmd/error.hpp"

namespace gspmd {

/// Alike on all ranks.
struct mpi_options {
  /// Use memory that the processes of a node share: for collectives in groups that lie on one node, and for arenas.
  bool shared_memory = true;
  /// The most elements that one MPI call counts, on all members together; at least 1.
  std::int64_t largest_count = INT_MAX;
  /// Shards up to this size are copied through memory that the processes of a node share, at most 256 KiB. Larger ones are read
  /// where they lie, or go by messages.
  std::int64_t small_shard_bytes = 16384;
};

/// One device per MPI process; the device's id is its rank.
///
/// Reductions in groups that lie on one node go through shared memory, and combine in the order of the members as those of
/// the other backends do; across nodes so do the all_reduces of a few values (16 KiB of all members), and those of maxima and
/// minima. For larger sums MPI chooses the order, one for all members; for a larger reduce_scatter also what the maximum of a NaN
/// is.
/// Works on a duplicate of the communicator it is given, which reports errors instead of ending the program; they arrive
/// as gspmd::error with MPI's text. MPI_THREAD_SINGLE is enough: one thread at a time uses it and the steps that run on it, the
/// one that MPI may be called from. One communicator per group of axes is made when that
/// group first communicates, and kept; nothing is allocated after the first collective of a kind and size.
///
/// The processes of a node share 1 MiB each for every group of axes, until the communicator is gone, and the arenas of steps (allocate). It
/// is memory without a name, which needs no room in /dev/shm; where processes may not open each other's (containers with user namespaces of
/// their own) it is a file there, which is removed as soon as all have it. All of it is reserved at once; if there is none, a note on
/// stderr says so and everything goes by messages.
///
/// Where a rank may fail alone, use launch, which tells why and ends all ranks. Here a rank that is gone, by an exception or
/// otherwise, is an error to those that wait for it in shared memory. An exception that passes this object waits 5 s until all
/// others are about to destroy theirs; if they are not, they may wait for this rank in MPI, and MPI_Abort ends all.
class mpi_communicator {
 public:
  /// Collective over `comm`, after MPI_Init. Throws gspmd::error, alike on all: options that differ or are out of range.
  explicit mpi_communicator(MPI_Comm comm, mpi_options options = {}) : mpi_communicator(comm, duplicate{}) {
    const auto cards =
        detail::exchange_cards(comm_, work_.rank, {options.shared_memory, options.largest_count, options.small_shard_bytes});
    detail::check_cards(cards);
    work_.largest_count = options.largest_count;
    work_.shared_memory = options.shared_memory;
    work_.small_shard_bytes = std::min(options.small_shard_bytes, detail::node_window::half_bytes);
    work_.oversubscribed = options.shared_memory && detail::is_oversubscribed(cards, work_.rank);
    work_.nodes = detail::nodes_of(cards);
  }
  mpi_communicator(const mpi_communicator&) = delete;
  mpi_communicator& operator=(const mpi_communicator&) = delete;
  /// Collective, if it is to be before MPI_Finalize; after it MPI can free nothing any more.
  ~mpi_communicator() {
    for (auto& group : groups_) group->leave();
    if (is_finalized()) {
      for (auto& group : groups_) static_cast<void>(group.release());
      return;
    }
    if (count_ > 1 && std::uncaught_exceptions() > exceptions_) await_others_or_abort();
    groups_.clear();
    MPI_Comm_free(&comm_);
  }

  [[nodiscard]] int device_count() const { return count_; }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int) const { return work_.rank; }
  /// Tells this communicator from every other one of this process.
  [[nodiscard]] std::uint64_t serial() const { return serial_; }
  void barrier() { detail::check_mpi(MPI_Barrier(comm_), "MPI_Barrier", work_.rank); }

  /// Zeroed memory that the other processes of the node can read in place: collectives between buffers in it cost what they
  /// cost between threads, and MPI carries nothing. Aligned to a cache line. Collective over all processes, which ask for the
  /// same size; throws gspmd::error, alike on all, if they do not. Letting go of it is not collective: when all have, a later
  /// call gives it out again, or frees it. It may outlive the communicator.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    if (!work_.shared_memory) {
      auto own = std::make_shared<detail::aligned_bytes>(static_cast<std::int64_t>(bytes), "a device");
      return {own, own->get()};
    }
    auto& memory = work_.memories[detail::free_memory(work_.memories, comm_, bytes)];
    if (memory) {
      std::memset(memory->mine(), 0, bytes);
    } else {
      memory = std::make_shared<detail::node_memory>(comm_, work_.rank, work_.nodes, bytes);
      if (memory->failure() != 0 && work_.rank == 0) work_.note_unshared(bytes, memory->failure());
    }
    return {memory, memory->mine()};
  }

  template <class T>
  void move(const detail::mesh_shape& mesh, const detail::movement& m, const T* const* in, T* const* out) {
    const auto& known = movements_.find(mesh, m, [&] { return new_route<detail::movement_route>(mesh, m); });
    known.group->move(mesh, m, known.route, in[0], out[0]);
  }

  template <class T>
  void start(const detail::mesh_shape& mesh, detail::span<const detail::movement> all, const T* const* in, T* const* out) {
    const auto find = [&](const detail::movement& m) -> const auto& {
      return joint_movements_.find(mesh, m, [&] { return new_route<detail::movement_route>(mesh, m, true); });
    };
    const detail::movement_route* routes[detail::most_moved_together]{};
    for (const auto& m : all) find(m);  // all are known then, and stay where they are
    for (std::size_t k = 0; k < all.size(); ++k) routes[k] = &find(all[k]).route;
    group_over(mesh, all[0].axes).start(mesh, all, routes, in, out);
  }
  template <class T>
  void finish(const detail::mesh_shape& mesh, detail::span<const detail::movement> all, const T* const*, T* const* out) {
    auto& group = group_over(mesh, all[0].axes);
    if (group.fills(out[0])) group.finish_movements();
  }

  template <class T>
  void reduce(const detail::mesh_shape& mesh, const detail::reduction& r, const T* const* in, T* const* out) {
    const auto& known = reductions_.find(mesh, r, [&] { return new_route<detail::reduction_route>(mesh, r); });
    known.group->reduce(mesh, r, known.route, in[0], out[0]);
  }

  template <class T>
  void reduce_together(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, const T* const* in,
                       T* const* out) {
    const auto find = [&](const detail::reduction& r) -> const auto& {
      return reductions_.find(mesh, r, [&] { return new_route<detail::reduction_route>(mesh, r); });
    };
    const detail::reduction_route* routes[detail::most_moved_together];
    for (const auto& r : all) find(r);  // as in start
    for (std::size_t k = 0; k < all.size(); ++k) routes[k] = &find(all[k]).route;
    group_over(mesh, all[0].axes).reduce_together(mesh, all, routes, in, out);
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
  struct duplicate {};
  /// Whatever is thrown after this frees the duplicate.
  mpi_communicator(MPI_Comm comm, duplicate) {
    int is_initialized = 0;
    MPI_Initialized(&is_initialized);
    if (is_initialized == 0 || is_finalized())
      throw error("the mpi backend needs MPI to be running: call MPI_Init before and MPI_Finalize after");
    detail::check_mpi(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup", -1);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &work_.rank);
    MPI_Comm_size(comm_, &count_);
  }

  /// Returns when all ranks have come here.
  [[gnu::noinline, gnu::cold]] void await_others_or_abort() {
    MPI_Request all_here = MPI_REQUEST_NULL;
    if (MPI_Ibarrier(comm_, &all_here) != MPI_SUCCESS) return;
    const double until = MPI_Wtime() + 5;
    for (int flag = 0; flag == 0 && MPI_Test(&all_here, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS;) {
      if (flag == 0 && MPI_Wtime() > until) {
        const error failure(
            "an exception passes an mpi_communicator that others still use, and would wait in: all ranks end. "
            "To see its text, catch it before, or use launch",
            work_.rank);
        detail::abort_mpi(failure, comm_);
      }
      ::usleep(1000);
    }
  }

  static std::uint64_t next_serial() {
    static std::atomic<std::uint64_t> last{0};
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
    template <class Descriptor, class... Joint>
    routed(detail::mpi_group& over, const detail::mesh_shape& mesh, const Descriptor& d, Joint... joint)
        : group(&over), route(over.new_route(mesh, d, joint...)) {}
  };
  /// Returns the route of a collective that is new. The cache may forget others: what is under way needs its route no more then.
  template <class Route, class Descriptor, class... Joint>
  routed<Route> new_route(const detail::mesh_shape& mesh, const Descriptor& d, Joint... joint) {
    for (auto& group : groups_) group->finish_movements();
    return routed<Route>(group_over(mesh, d.axes), mesh, d, joint...);
  }
  detail::mpi_group& group_over(const detail::mesh_shape& mesh, detail::axis_mask axes) {
    for (const auto& known : groups_)
      if (known->is_over(mesh, axes)) return *known;
    groups_.push_back(std::make_unique<detail::mpi_group>(comm_, mesh, axes, work_));
    return *groups_.back();
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int count_ = 0;
  int exceptions_ = std::uncaught_exceptions();
  std::uint64_t serial_ = next_serial();
  detail::mpi_workspace work_{};
  std::vector<std::unique_ptr<detail::mpi_group>> groups_;
  detail::descriptor_cache<detail::movement, routed<detail::movement_route>> movements_, joint_movements_;
  detail::descriptor_cache<detail::reduction, routed<detail::reduction_route>> reductions_;
};

/// Backend: one device per process of `comm`. MPI_Init and MPI_Finalize are the caller's.
struct mpi {
  MPI_Comm comm = MPI_COMM_WORLD;
  mpi_options options = {};
};

/// Throws, on all processes alike, what was found wrong on some of them before anything collective began: the text of the
/// lowest rank at fault, and its number. Where all are at fault, each throws its own. `failure` is null where nothing is wrong.
/// Collective over `backend.comm`.
inline void agree(const mpi& backend, const error* failure) {
  int is_initialized = 0, is_finalized = 0, rank = 0, count = 1;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_initialized != 0 && is_finalized == 0) {
    MPI_Comm_rank(backend.comm, &rank);
    MPI_Comm_size(backend.comm, &count);
    int lowest[2] = {failure != nullptr ? rank : count, failure == nullptr ? rank : count};  // at fault, not at fault
    detail::check_mpi(MPI_Allreduce(MPI_IN_PLACE, lowest, 2, MPI_INT, MPI_MIN, backend.comm), "MPI_Allreduce", rank);
    const auto [at_fault, innocent] = lowest;
    if (at_fault < count && innocent < count) {
      std::string text = failure != nullptr ? failure->text() : std::string();
      int size = static_cast<int>(text.size());
      MPI_Bcast(&size, 1, MPI_INT, at_fault, backend.comm);
      text.resize(static_cast<std::size_t>(size));
      MPI_Bcast(text.data(), size, MPI_CHAR, at_fault, backend.comm);
      throw error(text, at_fault);
    }
  }
  if (failure != nullptr) throw *failure;
}

/// Calls `f(comm)` once on every process; collective over `backend.comm`. Throws gspmd::error, alike on all processes,
/// unless there are `devices` of them with the same options. The BLAS keeps its threads: where ranks share cores, bind them to
/// cores or set OPENBLAS_NUM_THREADS. What `f` throws on one process cannot reach those that wait for it: its text goes to stderr
/// and MPI_Abort ends them all. Alone, a process just throws it.
template <class F>
void launch(const mpi& backend, int devices, F&& f) {
  mpi_communicator comm(backend.comm, backend.options);
  require_devices(comm, devices);
  if (devices == 1) return static_cast<void>(f(comm));
  const auto give_up = [&](const error& failure) { detail::abort_mpi(failure, backend.comm); };
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
