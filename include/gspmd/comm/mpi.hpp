// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/mpi/call.hpp"  // first: it says how to include mpi.h

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

/// Alike on all ranks.
struct mpi_options {
  /// Use memory that the processes of a node share: for collectives in groups that lie on one node, and for arenas.
  bool shared_memory = true;
  /// The most elements that one MPI call counts, on all members together; at least 1.
  std::int64_t largest_count = INT_MAX;
  /// Shards up to this size are copied through memory that the processes of a node share, at most 256 KiB. Larger ones are read
  /// where they lie, or go by messages.
  std::int64_t small_shard_bytes = 16384;

  friend bool operator==(const mpi_options&, const mpi_options&) = default;
};

/// One device per MPI process; the device's id is its rank.
///
/// Reductions in groups that lie on one node go through shared memory, and combine in the order of the members as those of
/// the other backends do; across nodes so do those of a few values (16 KiB of all members; a reduce_scatter of up to 32 of them), and
/// maxima and minima of floats: that of a NaN is NaN. For larger sums MPI chooses the order, one for all members.
/// Works on duplicates of the communicator it is given, which report errors instead of ending the program; they arrive
/// as gspmd::error with MPI's text. MPI_THREAD_SINGLE is enough: one thread at a time uses it and the steps that run on it, the
/// one that MPI may be called from. With MPI_THREAD_MULTIPLE several threads may each use one, made of a communicator of their own. One communicator per group of axes is made when that
/// group first communicates, and kept; nothing is allocated after the first collective of a kind and size.
///
/// The processes of a node share 1 MiB each for every group of axes, until the communicator is gone, and the arenas of steps (allocate).
/// This memory has no name and needs no space in /dev/shm, so nothing is left there when a job is killed. Processes open the memory of
/// another one in /proc. If they may not (containers with separate user namespaces), they send it over UNIX sockets, which requires one
/// network namespace. All of it is reserved at once. If it cannot be shared, a note on stderr says so and everything goes by messages.
///
/// Ranks that come to different collectives are told so, with both, and where their program asks for them: at once where they meet in
/// shared memory, else when all ranks have waited for about one and a half seconds or are about to destroy this object. So is a rank that
/// waits for one that comes to nothing any more. A rank that computes is waited for, however long. Who was told so cannot go on with this
/// communicator.
///
/// If a rank may fail alone, use launch, which prints the text and ends all ranks. An exception that passes this object waits 2.5 s until all
/// other ranks are about to destroy theirs. If they are not, they may wait for this rank in MPI, so MPI_Abort ends all. So all ranks end
/// within 5 s of an exception. If a rank is killed or exits, the launcher (mpirun, mpiexec) ends the others.
class mpi_communicator {
 public:
  /// Collective over `comm`, after MPI_Init. Throws gspmd::error, alike on all: options that differ or are out of range; an
  /// intercommunicator; and where `comm` is MPI_COMM_NULL.
  explicit mpi_communicator(MPI_Comm comm, mpi_options options = {}) : mpi_communicator(comm, duplicate{}) {
    const auto cards =
        detail::exchange_cards(all_.comm, work_.rank, {options.shared_memory, options.largest_count, options.small_shard_bytes});
    detail::check_cards(cards);
    work_.largest_count = options.largest_count;
    work_.shared_memory = options.shared_memory;
    work_.small_shard_bytes = std::min(options.small_shard_bytes, detail::node_window::half_bytes);
    work_.oversubscribed = detail::is_oversubscribed(cards, work_.rank);
#ifndef OPEN_MPI  // which gives way itself then
    if (work_.oversubscribed) work_.spins = 20;
#endif
    work_.nodes = detail::nodes_of(cards);
  }
  mpi_communicator(const mpi_communicator&) = delete;
  mpi_communicator& operator=(const mpi_communicator&) = delete;
  /// Collective, if it is to be before MPI_Finalize: waits for all ranks. After it MPI can free nothing any more.
  ~mpi_communicator() {
    const bool is_finalized = detail::mpi_is_finalized();
    if (!is_finalized && !is_kept_) leave(std::uncaught_exceptions() > exceptions_);
    if (is_finalized || work_.watch.has_failed()) {  // what was sent and not received would be taken for messages of the next one
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
  /// Tells this communicator from every other one of this process.
  [[nodiscard]] std::uint64_t serial() const { return serial_; }
  void barrier() { meet({1, nullptr, nullptr, nullptr, describe_barrier}); }

  /// Zeroed memory that the other processes of the node can read in place: collectives between buffers in it cost what they
  /// cost between threads, and MPI carries nothing. Aligned to a cache line. Collective over all processes, which ask for the
  /// same size; throws gspmd::error, alike on all, if they do not. Letting go of it is not collective: when all have, a later
  /// call gives it out again, or frees it. It may outlive the communicator.
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
    for (const auto& m : all) find(m);  // all are known then, and stay where they are
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

  /// Every device sends every device a block of its own size: of in[0], sent[0][k] elements go to device k, one block after the
  /// other; received[0][k] elements from device k arrive in out[0]. Collective over all devices.
  template <class T>
  void exchange(const T* const* in, const std::int64_t* const* sent, T* const* out, const std::int64_t* const* received) {
    all_.begin({5, nullptr, nullptr, nullptr, describe_exchange}, work_);
    detail::mpi_exchange({all_, work_, work_.requests}, count_, work_.rank, in[0], sent[0], out[0], received[0]);
  }

 private:
  struct duplicate {};
  /// Whatever is thrown after this frees the duplicates.
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
  /// Where launch ends, which keeps this communicator.
  void rest() {
    leave(false);
    constexpr std::size_t most_kept_bytes = 64 << 20;
    std::size_t bytes = 0;  // alike on all
    for (const auto& memory : work_.memories) bytes += memory ? memory->bytes() : 0;
    if (bytes > most_kept_bytes) static_cast<void>(detail::free_memory(work_.memories, all_.comm, 0));
  }
  /// Returns when all ranks have come here. Where an exception brings this one, others may wait for it in MPI, and would for ever.
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
  /// Returns when all ranks have come for this.
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
  /// Returns the route of a collective that is new. The cache may forget others: what is under way needs its route no more then.
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
    for (const auto& r : all) find(r);  // as in start
    for (std::size_t k = 0; k < all.size(); ++k) routes[k] = &find(all[k]).route;
  }
  template <class T, class Descriptor>
  detail::mpi_group& group_for(const detail::mesh_shape& mesh, const Descriptor& d) {
    return group_over(mesh, d.axes, [&] { return detail::subject_of(mesh, d, detail::dtype_of<T>()); });
  }
  /// `subject()` is what its members come for, where it is new.
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
  if (is_initialized != 0 && is_finalized == 0) detail::require_communicator(backend.comm);
  if (is_initialized != 0 && is_finalized == 0) {
    MPI_Comm_rank(backend.comm, &rank);
    MPI_Comm_size(backend.comm, &count);
    int lowest[2] = {failure != nullptr ? rank : count, failure == nullptr ? rank : count};  // at fault, not at fault
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

/// The communicators that launch makes for one of the user's, and keeps with it: one mpi_communicator for each set of options.
class kept_communicators {
 public:
  /// Collective over `backend.comm`. Where not all ranks find theirs, all make one, and so compare their options.
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
  /// Of the ranks of the user's communicator; null before the first launch.
  [[nodiscard]] mpi_watch* watch() const { return all_.empty() ? nullptr : &all_.front().comm->work_.watch; }
  /// Announces that this process comes to no launch any more, on any communicator. Returns when all ranks of all these
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

}  // namespace detail

/// Calls `f(comm)` once on every process; collective over `backend.comm`. What it makes in MPI it keeps for the next launch on this
/// communicator, until MPI_Comm_free of it or MPI_Finalize; of shared memory, no more than 64 MiB for each process. MPI_Comm_free of it must
/// come on all ranks, and MPI_Finalize then waits for all ranks: if one waits in run or launch, it prints which rank leaves, and ends all. Throws
/// gspmd::error, alike on all processes, unless there are `devices` of them with the same options. The BLAS keeps its threads: where
/// ranks share cores, bind them to cores or set OPENBLAS_NUM_THREADS. What `f` throws on one process cannot reach those that wait for
/// it: its text goes to stderr and MPI_Abort ends them all. Alone, a process just throws it.
template <class F>
void launch(const mpi& backend, int devices, F&& f) {
  detail::require_communicator(backend.comm);
  auto& comm = detail::mpi_kept<detail::kept_communicators>::with(backend.comm).of(backend);
  require_devices(comm, devices);
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
