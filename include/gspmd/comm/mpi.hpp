// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/mpi/call.hpp"  // first: it configures and includes mpi.h

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/descriptor_cache.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/mpi/arrival.hpp"
#include "gspmd/detail/transport/mpi/exchange.hpp"
#include "gspmd/detail/transport/mpi/group.hpp"
#include "gspmd/detail/transport/mpi/kept.hpp"
#include "gspmd/detail/transport/mpi/messages.hpp"
#include "gspmd/detail/transport/mpi/node_memory.hpp"
#include "gspmd/detail/transport/mpi/ranks.hpp"
#include "gspmd/error.hpp"

namespace gspmd {

namespace detail {
class kept_communicators;
inline mpi_watch* watch_of(MPI_Comm comm);
}  // namespace detail

/// Options of the MPI backend. All ranks must pass the same options.
struct mpi_options {
  /// Use memory that the processes of a node share, for arenas and for the collectives of groups within one node.
  bool shared_memory = true;
  /// The largest number of elements in one MPI call, summed over all members; at least 1.
  std::int64_t largest_count = INT_MAX;
  /// Shards of at most this size (and at most 256 KiB) are copied through memory that the processes of a node share.
  /// Other members read larger shards in place, or receive them in messages.
  std::int64_t small_shard_bytes = 16384;

  friend bool operator==(const mpi_options&, const mpi_options&) = default;
};

/// One device per MPI process. The id of the device is the rank of the process.
///
/// The communicator works on duplicates of the user's MPI communicator. The duplicates return error codes instead of
/// ending the program; each error becomes a gspmd::error with MPI's text. The first collective over a group of axes
/// makes an MPI communicator, which is kept. After the first collective of a kind and size, nothing is allocated.
///
/// These reductions combine in the order of the members, as the other backends do:
///  * within a node whose processes share memory;
///  * reductions across nodes of at most 16 KiB over all members; for a reduce_scatter, with at most 32 members;
///  * bf16, f16, integers of 8 and 16 bits, and own types;
///  * maxima and minima of floats and of unsigned integers. If an element is NaN, the result is NaN.
///
/// For all other reductions MPI chooses the order. The order is the same on all members.
///
/// The processes of a node share the arenas of steps (allocate), and 1 MiB per process for every group of axes. The
/// 1 MiB is kept until the communicator is destroyed. This memory has no name and uses no space in /dev/shm, so nothing
/// remains after a job is killed. A process opens another process's memory in /proc. If /proc forbids it (containers
/// with separate user namespaces), the processes send file descriptors over UNIX sockets, which requires one network
/// namespace. All memory is reserved in the constructor. If it cannot be shared, a note on stderr says so, and all data
/// is sent in messages.
///
/// **Errors.** If ranks arrive at different collectives, each of these ranks gets an error with both collectives and
/// their source lines. In shared memory this happens immediately. Otherwise it happens when all ranks have waited for
/// about one and a half seconds, or are about to destroy this object. A rank that waits for a rank that will never
/// arrive gets such an error too. A rank that computes is awaited without limit. After such an error the rank cannot
/// use this communicator.
///
/// If a rank may fail alone, use launch, which prints the text and ends all ranks. If an exception unwinds past this
/// object, the destructor waits up to 2.5 s until all other ranks are about to destroy theirs. If they are not, they
/// may wait for this rank in MPI, so MPI_Abort ends all ranks. So all ranks end within 5 s of an exception. If a rank
/// is killed or exits, the launcher (mpirun, mpiexec) ends the other ranks.
///
/// **Threads.** MPI_THREAD_SINGLE is enough. Only one thread at a time may use the object and the steps that run on it,
/// and MPI must allow calls from this thread. With MPI_THREAD_MULTIPLE several threads may each use an object, each
/// made from its own MPI communicator.
class mpi_communicator {
 public:
  /// Duplicates `comm`; call it after MPI_Init.
  ///
  /// **Communication.** Collective over `comm`.
  /// **Errors.** gspmd::error, the same on all ranks, if options differ or are out of range, or if `comm` is an
  /// intercommunicator. Also if `comm` is MPI_COMM_NULL.
  explicit mpi_communicator(MPI_Comm comm, mpi_options options = {}) : mpi_communicator(comm, duplicate{}) {
    const auto cards =
        detail::exchange_cards(all_.comm, work_.rank, {options.shared_memory, options.largest_count, options.small_shard_bytes});
    detail::check_cards(cards);
    work_.largest_count = options.largest_count;
    work_.shared_memory = options.shared_memory;
    work_.small_shard_bytes = std::min(options.small_shard_bytes, detail::node_window::half_bytes);
    work_.oversubscribed = detail::is_oversubscribed(cards, work_.rank);
#ifndef OPEN_MPI  // Open MPI yields on its own if ranks share cores
    if (work_.oversubscribed) work_.spins = 20;
#endif
    work_.nodes = detail::nodes_of(cards);
  }
  mpi_communicator(const mpi_communicator&) = delete;
  mpi_communicator& operator=(const mpi_communicator&) = delete;
  /// Waits for all ranks and frees the duplicates; collective if called before MPI_Finalize. After MPI_Finalize it
  /// frees nothing in MPI.
  ~mpi_communicator() {
    const bool is_finalized = detail::mpi_is_finalized();
    if (!is_finalized && !is_kept_) leave(std::uncaught_exceptions() > exceptions_);
    if (is_finalized || work_.watch.has_failed()) {  // a later communicator could receive unreceived messages
      for (auto& group : groups_) static_cast<void>(group.release());
      return;
    }
    groups_.clear();
    for (MPI_Comm own : {all_.comm, work_.watch.comm()})
      if (own != MPI_COMM_NULL) MPI_Comm_free(&own);
  }

  [[nodiscard]] int device_count() const { return count_; }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int) const { return work_.rank; }
  /// Returns a number that no other communicator of this process has.
  [[nodiscard]] std::uint64_t serial() const { return serial_; }
  void barrier() { meet({1, nullptr, nullptr, nullptr, describe_barrier}); }

  /// Returns zeroed memory, aligned to a cache line, that the other processes of the node can read in place.
  ///
  /// Collectives between buffers in this memory cost the same as between threads, and MPI transfers no elements.
  /// Releasing the memory is not collective: after all processes have released it, a later call reuses or frees it. The
  /// memory may outlive the communicator.
  ///
  /// **Communication.** Collective over all processes. All processes pass the same size.
  /// **Errors.** If the sizes differ, gspmd::error, the same on all processes.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    if (!work_.shared_memory) {
      auto own = std::make_shared<detail::aligned_bytes>(static_cast<std::int64_t>(bytes), "a device");
      return {own, own->get()};
    }
    meet({3, nullptr, &bytes, nullptr, describe_allocation});
    auto& memory = work_.memories[detail::free_memory(work_.memories, all_.comm, bytes)];
    if (memory) {
      std::memset(memory->mine(), 0, bytes);
    } else {
      memory = std::make_shared<detail::node_memory>(all_.comm, work_.rank, work_.nodes, bytes);
      if (memory->failure() != 0 && work_.rank == 0) work_.note_unshared(bytes, memory->failure());
    }
    return {memory, memory->mine()};
  }

  template <class T>
  void move(const detail::mesh_shape& mesh, const detail::movement& m, const T* const* in, T* const* out) {
    const auto& known = movements_.find(mesh, m, [&] { return new_route<detail::movement_route, T>(mesh, m); });
    known.group->move(mesh, m, known.route, in[0], out[0]);
  }

  template <class T>
  void start(const detail::mesh_shape& mesh, detail::span<const detail::movement> all, const T* const* in, T* const* out) {
    const auto find = [&](const detail::movement& m) -> const auto& {
      return joint_movements_.find(mesh, m, [&] { return new_route<detail::movement_route, T>(mesh, m, true); });
    };
    const detail::movement_route* routes[detail::most_moved_together]{};
    for (const auto& m : all) find(m);  // makes all routes first: the pointers below stay valid then
    for (std::size_t k = 0; k < all.size(); ++k) routes[k] = &find(all[k]).route;
    group_for<T>(mesh, all[0]).start(mesh, all, routes, in, out);
  }
  template <class T>
  void start(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, const T* const* in, T* const* out) {
    const detail::reduction_route* routes[detail::most_moved_together];
    find_routes<T>(mesh, all, routes);
    go_on();
    group_for<T>(mesh, all[0]).start(mesh, all, routes, in, out);
  }
  template <class T, class List>
  void finish(const detail::mesh_shape& mesh, const List& all, const T* const*, T* const* out) {
    group_for<T>(mesh, all[0]).finish(out[0]);
  }

  void go_on() {
    for (auto& group : groups_) group->go_on();
  }

  template <class T>
  void reduce(const detail::mesh_shape& mesh, const detail::reduction& r, const T* const* in, T* const* out) {
    const auto& known = reductions_.find(mesh, r, [&] { return new_route<detail::reduction_route, T>(mesh, r); });
    known.group->reduce(mesh, r, known.route, in[0], out[0]);
  }

  template <class T>
  void reduce_together(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, const T* const* in,
                       T* const* out) {
    const detail::reduction_route* routes[detail::most_moved_together];
    find_routes<T>(mesh, all, routes);
    group_for<T>(mesh, all[0]).reduce_together(mesh, all, routes, in, out);
  }

  void shift(const detail::mesh_shape& mesh, const detail::ring& r, const detail::ring_buffers& ahead,
             const detail::ring_buffers* behind) {
    group_over(mesh, r.mask(), [&] { return detail::subject_of(mesh, r); }).shift(mesh, r, ahead, behind);
  }

  /// Every device sends each device a block of elements. The blocks in in[0] follow each other: sent[0][k] elements for
  /// device k. The device stores the blocks that it receives in out[0] in the same order: received[0][k] elements from
  /// device k.
  ///
  /// **Communication.** Collective over all devices.
  template <class T>
  void exchange(const T* const* in, const std::int64_t* const* sent, T* const* out, const std::int64_t* const* received) {
    all_.begin({5, nullptr, nullptr, nullptr, describe_exchange}, work_);
    detail::mpi_exchange({all_, work_, work_.requests}, count_, work_.rank, in[0], sent[0], out[0], received[0]);
  }

 private:
  struct duplicate {};
  /// Makes the duplicates. If the calling constructor throws later, the destructor frees them.
  mpi_communicator(MPI_Comm comm, duplicate) {
    detail::require_communicator(comm);
    detail::wait_for_all_ranks(comm, detail::watch_of(comm));
    const auto duplicate_of = [](MPI_Comm from) {
      MPI_Comm made = MPI_COMM_NULL;
      detail::check_mpi(MPI_Comm_dup(from, &made), "MPI_Comm_dup", -1);
      MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
      return made;
    };
    all_.comm = duplicate_of(comm);
    MPI_Comm_rank(comm, &work_.rank);
    MPI_Comm_size(comm, &count_);
    for (int r = 0; r < count_; ++r) all_.ranks.push_back(r);
    work_.watch.begin(duplicate_of(comm));
  }

  friend class detail::kept_communicators;
  /// Ends a launch, which keeps this communicator: waits for all ranks. If more than 64 MiB of shared memory are kept,
  /// frees the memory that all ranks have released.
  void rest() {
    leave(false);
    constexpr std::size_t most_kept_bytes = 64 << 20;
    std::size_t bytes = 0;  // the same on all ranks
    for (const auto& memory : work_.memories) bytes += memory ? memory->bytes() : 0;
    if (bytes > most_kept_bytes) static_cast<void>(detail::free_memory(work_.memories, all_.comm, 0));
  }
  /// Returns when all ranks have called it. If an exception unwinds this rank, the other ranks have 2.5 seconds to
  /// follow. Otherwise ends all ranks, because they may wait for this rank in MPI forever.
  void leave(bool by_exception) {
    if (count_ == 1) return;
    try {
      if (work_.watch.leave(by_exception ? 2.5 : std::numeric_limits<double>::infinity())) return;
    } catch (const error& failure) {
      detail::abort_mpi(failure, all_.comm);
    }
    const error failure(
        "an exception passes an mpi_communicator that others still use, and would wait in: all ranks end. "
        "To see its text, catch it before, or use launch",
        work_.rank);
    detail::abort_mpi(failure, all_.comm);
  }
  /// Returns when all ranks have arrived with the same subject.
  void meet(const detail::meeting_subject& subject) {
    all_.begin(subject, work_);
    detail::roll_call({all_, work_, work_.requests}, count_, work_.rank, [](std::int64_t r) { return r; });
  }
  static std::string describe_barrier(const detail::mesh_shape*, dtype, const void*) { return "a barrier"; }
  static std::string describe_exchange(const detail::mesh_shape*, dtype, const void*) { return "an exchange of blocks"; }
  static std::string describe_allocation(const detail::mesh_shape*, dtype, const void* bytes) {
    return "the start of a step, for which " + std::to_string(*static_cast<const std::size_t*>(bytes)) + " bytes are shared";
  }

  static std::uint64_t next_serial() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }

  template <class Route>
  struct routed {
    detail::mpi_group* group;
    Route route;
    template <class Descriptor, class... Joint>
    routed(detail::mpi_group& over, const detail::mesh_shape& mesh, const Descriptor& d, Joint... joint)
        : group(&over), route(over.new_route(mesh, d, joint...)) {}
  };
  /// Makes the route of a collective that is not cached. The cache may evict other routes, so collectives under way are
  /// finished first.
  template <class Route, class T, class Descriptor, class... Joint>
  routed<Route> new_route(const detail::mesh_shape& mesh, const Descriptor& d, Joint... joint) {
    for (auto& group : groups_) group->finish_all();
    return routed<Route>(group_for<T>(mesh, d), mesh, d, joint...);
  }
  template <class T>
  void find_routes(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all,
                   const detail::reduction_route** routes) {
    const auto find = [&](const detail::reduction& r) -> const auto& {
      return reductions_.find(mesh, r, [&] { return new_route<detail::reduction_route, T>(mesh, r); });
    };
    for (const auto& r : all) find(r);  // makes all routes first, as in start
    for (std::size_t k = 0; k < all.size(); ++k) routes[k] = &find(all[k]).route;
  }
  template <class T, class Descriptor>
  detail::mpi_group& group_for(const detail::mesh_shape& mesh, const Descriptor& d) {
    return group_over(mesh, d.axes, [&] { return detail::subject_of(mesh, d, detail::dtype_of<T>()); });
  }
  /// Returns the group over these axes, and makes it if it is new. `subject()` describes the collective that needs the
  /// group.
  template <class Subject>
  detail::mpi_group& group_over(const detail::mesh_shape& mesh, detail::axis_mask axes, Subject subject) {
    for (const auto& known : groups_)
      if (known->is_over(mesh, axes)) return *known;
    all_.begin(subject(), work_);
    groups_.push_back(std::make_unique<detail::mpi_group>(all_, mesh, axes, work_));
    return *groups_.back();
  }

  detail::mpi_channel all_;
  int count_ = 0;
  bool is_kept_ = false;
  int exceptions_ = std::uncaught_exceptions();
  std::uint64_t serial_ = next_serial();
  detail::mpi_workspace work_{};
  std::vector<std::unique_ptr<detail::mpi_group>> groups_;
  detail::descriptor_cache<detail::movement, routed<detail::movement_route>> movements_, joint_movements_;
  detail::descriptor_cache<detail::reduction, routed<detail::reduction_route>> reductions_;
};

/// Backend: one device per process of `comm`. The caller calls MPI_Init and MPI_Finalize.
struct mpi {
  MPI_Comm comm = MPI_COMM_WORLD;
  mpi_options options = {};
};

/// Throws the same error on all processes if some processes found one before a collective: the error of the lowest rank
/// that failed.
///
/// `failure` is null on a process without an error. If all processes failed, each throws its own error. Otherwise all
/// processes throw: if ranks 1 and 3 of 4 failed, all four throw the error of rank 1.
///
/// **Communication.** Collective over `backend.comm`.
inline void agree(const mpi& backend, const error* failure) {
  int is_initialized = 0, is_finalized = 0, rank = 0, count = 1;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_initialized != 0 && is_finalized == 0) detail::require_communicator(backend.comm);
  if (is_initialized != 0 && is_finalized == 0) {
    MPI_Comm_rank(backend.comm, &rank);
    MPI_Comm_size(backend.comm, &count);
    int lowest[2] = {failure != nullptr ? rank : count, failure == nullptr ? rank : count};  // failed, not failed
    detail::minimum_of_all_ranks(lowest, 2, backend.comm, detail::watch_of(backend.comm));
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

namespace detail {

/// The communicators that launch has made for one MPI communicator of the user, one for each set of options. MPI keeps
/// the object as an attribute of the user's communicator.
class kept_communicators {
 public:
  /// Returns the communicator with these options. Collective over `backend.comm`. If a rank has none, all ranks make
  /// one, and so check that their options are equal.
  mpi_communicator& of(const mpi& backend) {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const entry& e) { return e.options == backend.options; });
    const int number = found != all_.end() ? static_cast<int>(found - all_.begin()) : -1;
    int least[2] = {number, -number};
    minimum_of_all_ranks(least, 2, backend.comm, watch());
    if (least[0] >= 0 && least[0] == -least[1]) return *found->comm;
    all_.push_back({backend.options, std::make_unique<mpi_communicator>(backend.comm, backend.options)});
    all_.back().comm->is_kept_ = true;
    return *all_.back().comm;
  }
  static void rest(mpi_communicator& comm) { comm.rest(); }
  /// Returns the watch over the ranks of the user's communicator, or null before the first launch.
  [[nodiscard]] mpi_watch* watch() const { return all_.empty() ? nullptr : &all_.front().comm->work_.watch; }
  /// Announces that this process will call no further launch on any communicator. Returns when all ranks of all these
  /// communicators have announced it, in any order.
  static void leave(const std::vector<std::unique_ptr<kept_communicators>>& all) {
    std::vector<mpi_watch*> waiting;
    for (const auto& kept : all)
      for (const auto& e : kept->all_)
        if (e.comm->count_ > 1 && !e.comm->work_.watch.has_failed()) waiting.push_back(&e.comm->work_.watch);
    try {
      for (int turns = 0; !waiting.empty(); ++turns) {
        waiting.erase(std::remove_if(waiting.begin(), waiting.end(), [](mpi_watch* w) { return w->has_left(); }), waiting.end());
        if (turns > 100) ::usleep(100);
      }
    } catch (const error& failure) {
      abort_mpi(failure, MPI_COMM_WORLD);
    }
  }

 private:
  struct entry {
    mpi_options options;
    std::unique_ptr<mpi_communicator> comm;
  };
  std::vector<entry> all_;
};

/// Returns the watch of an earlier launch on `comm`, or null.
inline mpi_watch* watch_of(MPI_Comm comm) {
  const auto* const kept = mpi_kept<kept_communicators>::find(comm);
  return kept != nullptr ? kept->watch() : nullptr;
}

/// Returns the communicator of a launch with this number of devices. After an error rank 0 ends all ranks, so that the
/// text is printed once. Other ranks wait 3 s for that. If rank 0 has no error, they end all ranks.
inline mpi_communicator& communicator_for(const mpi& backend, int devices) {
  try {
    auto& comm = mpi_kept<kept_communicators>::with(backend.comm).of(backend);
    require_devices(comm, devices);
    return comm;
  } catch (const error& failure) {
    int rank = 0, count = 1;
    MPI_Comm_rank(backend.comm, &rank);
    MPI_Comm_size(backend.comm, &count);
    if (rank > 0) ::sleep(3);
    if (count > 1) abort_mpi(failure, backend.comm);
    throw;
  }
}

}  // namespace detail

/// Calls `f(comm)` once on every process of `backend.comm`.
///
/// The communicator and its groups are kept for the next launch on this MPI communicator, until MPI_Comm_free or
/// MPI_Finalize. At most 64 MiB of shared memory per process are kept. All ranks must call MPI_Comm_free. MPI_Finalize
/// waits for all ranks; if a rank still waits in run or launch, MPI_Finalize prints the rank that leaves and ends all
/// ranks. The BLAS keeps its threads: if ranks share cores, bind them to cores or set OPENBLAS_NUM_THREADS.
///
/// **Communication.** Collective over `backend.comm`.
/// **Errors.** If the number of processes is not `devices`, or their options differ, rank 0 prints the text to stderr
/// and ends all processes by MPI_Abort with status 1. If `f` throws on one of several processes, that process does so:
/// the others may wait for it. With one process, passes the exception on.
template <class F>
void launch(const mpi& backend, int devices, F&& f) {
  detail::require_communicator(backend.comm);
  auto& comm = detail::communicator_for(backend, devices);
  if (devices == 1) {
    f(comm);
    return detail::kept_communicators::rest(comm);
  }
  const auto give_up = [&](const error& failure) { detail::abort_mpi(failure, backend.comm); };
  try {
    f(comm);
    detail::kept_communicators::rest(comm);
  } catch (const error& failure) {
    give_up(failure.rank() < 0 ? failure.with_rank(comm.device(0)) : failure);
  } catch (const std::exception& failure) {
    give_up(error(failure.what(), comm.device(0)));
  } catch (...) {
    give_up(error("an exception that is not a std::exception", comm.device(0)));
  }
}

}  // namespace gspmd
