// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/descriptor_cache.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/mpi/arrival.hpp"
#include "gspmd/detail/transport/mpi/exchange.hpp"
#include "gspmd/detail/transport/mpi/group.hpp"
#include "gspmd/detail/transport/mpi/messages.hpp"
#include "gspmd/detail/transport/mpi/node_memory.hpp"
#include "gspmd/detail/transport/mpi/options.hpp"
#include "gspmd/detail/transport/mpi/ranks.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// The implementation of mpi_communicator. Elements have a dtype, and reductions a row_combiner, so no function is a
/// template over element types.
class mpi_collectives {
 public:
  /// Collective over `comm`. `earlier` is the watch of an earlier launch on `comm`, or null.
  mpi_collectives(MPI_Comm comm, const mpi_options& options, mpi_watch* earlier) : mpi_collectives(comm, earlier) {
    const auto cards =
        exchange_cards(all_.comm, work_.rank, {options.shared_memory, options.largest_count, options.small_shard_bytes});
    check_cards(cards);
    work_.largest_count = options.largest_count;
    work_.shared_memory = options.shared_memory;
    work_.small_shard_bytes = std::min(options.small_shard_bytes, node_window::half_bytes);
    work_.oversubscribed = is_oversubscribed(cards, work_.rank);
#ifndef OPEN_MPI  // Open MPI yields on its own if ranks share cores
    if (work_.oversubscribed) work_.spins = 20;
#endif
    work_.nodes = nodes_of(cards);
  }
  mpi_collectives(const mpi_collectives&) = delete;
  mpi_collectives& operator=(const mpi_collectives&) = delete;
  ~mpi_collectives() {
    const bool is_finalized = mpi_is_finalized();
    if (!is_finalized && !is_kept) leave(std::uncaught_exceptions() > exceptions_);
    if (is_finalized || work_.watch.has_failed()) {  // a later communicator could receive unreceived messages
      for (auto& group : groups_) static_cast<void>(group.release());
      return;
    }
    groups_.clear();
    for (MPI_Comm own : {all_.comm, work_.watch.comm()})
      if (own != MPI_COMM_NULL) MPI_Comm_free(&own);
  }

  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] int rank() const { return work_.rank; }
  [[nodiscard]] mpi_watch& watch() { return work_.watch; }
  void barrier() { meet({1, nullptr, nullptr, nullptr, describe_barrier}); }

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    if (!work_.shared_memory) {
      auto own = std::make_shared<aligned_bytes>(static_cast<std::int64_t>(bytes), "a device");
      return {own, own->get()};
    }
    meet({3, nullptr, &bytes, nullptr, describe_allocation});
    auto& memory = work_.memories[free_memory(work_.memories, all_.comm, bytes)];
    if (memory) {
      std::memset(memory->mine(), 0, bytes);
    } else {
      memory = std::make_shared<node_memory>(all_.comm, work_.rank, work_.nodes, bytes);
      if (memory->failure() != 0 && work_.rank == 0) work_.note_unshared(bytes, memory->failure());
    }
    return {memory, memory->mine()};
  }

  void move(const mesh_shape& mesh, const movement& m, dtype type, const void* in, void* out) {
    const auto& known = movements_.find(mesh, m, [&] { return new_route<movement_route>(mesh, m, type); });
    known.group->move(mesh, m, known.route, type, in, out);
  }
  void start(const mesh_shape& mesh, span<const movement> all, dtype type, const void* const* in, void* const* out) {
    const auto find = [&](const movement& m) -> const auto& {
      return joint_movements_.find(mesh, m, [&] { return new_route<movement_route>(mesh, m, type, true); });
    };
    const movement_route* routes[most_moved_together]{};
    for (const auto& m : all) find(m);  // makes all routes first: the pointers below stay valid then
    for (std::size_t k = 0; k < all.size(); ++k) routes[k] = &find(all[k]).route;
    group_for(mesh, all[0], type).start(mesh, all, routes, type, in, out);
  }
  void start(const mesh_shape& mesh, span<const reduction> all, dtype type, const row_combiner& op, const void* const* in,
             void* const* out) {
    const reduction_route* routes[most_moved_together];
    find_routes(mesh, all, type, routes);
    go_on();
    group_for(mesh, all[0], type).start(mesh, all, routes, type, op, in, out);
  }
  /// Finishes the list over these axes that fills `out`, and all lists that were started before it.
  void finish(const mesh_shape& mesh, axis_mask axes, const void* out) {
    for (const auto& known : groups_)
      if (known->is_over(mesh, axes)) return known->finish(out);
  }
  void go_on() {
    for (auto& group : groups_) group->go_on();
  }
  void reduce(const mesh_shape& mesh, const reduction& r, dtype type, const row_combiner& op, const void* in, void* out) {
    const auto& known = reductions_.find(mesh, r, [&] { return new_route<reduction_route>(mesh, r, type); });
    known.group->reduce(mesh, r, known.route, type, op, in, out);
  }
  void reduce_together(const mesh_shape& mesh, span<const reduction> all, dtype type, const row_combiner& op,
                       const void* const* in, void* const* out) {
    const reduction_route* routes[most_moved_together];
    find_routes(mesh, all, type, routes);
    group_for(mesh, all[0], type).reduce_together(mesh, all, routes, type, op, in, out);
  }
  void shift(const mesh_shape& mesh, const ring& r, const ring_buffers& ahead, const ring_buffers* behind) {
    group_over(mesh, r.mask(), [&] { return subject_of(mesh, r); }).shift(mesh, r, ahead, behind);
  }
  void exchange(std::int64_t bytes_per_elem, const void* in, const std::int64_t* sent, void* out, const std::int64_t* received) {
    all_.begin({5, nullptr, nullptr, nullptr, describe_exchange}, work_);
    mpi_exchange({all_, work_, work_.requests}, count_, work_.rank, bytes_per_elem, static_cast<const std::byte*>(in), sent,
                 static_cast<std::byte*>(out), received);
  }

  /// Ends a launch, which keeps this communicator: waits for all ranks. If more than 64 MiB of shared memory are kept,
  /// frees the memory that all ranks have released.
  void rest() {
    leave(false);
    constexpr std::size_t most_kept_bytes = 64 << 20;
    std::size_t bytes = 0;  // the same on all ranks
    for (const auto& memory : work_.memories) bytes += memory ? memory->bytes() : 0;
    if (bytes > most_kept_bytes) static_cast<void>(free_memory(work_.memories, all_.comm, 0));
  }

  bool is_kept = false;  // for later launches; the destructor does not wait for the other ranks then

 private:
  /// Makes the duplicates. If the calling constructor throws later, the destructor frees them.
  mpi_collectives(MPI_Comm comm, mpi_watch* earlier) {
    wait_for_all_ranks(comm, earlier);
    const auto duplicate_of = [](MPI_Comm from) {
      MPI_Comm made = MPI_COMM_NULL;
      check_mpi(MPI_Comm_dup(from, &made), "MPI_Comm_dup", -1);
      MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
      return made;
    };
    all_.comm = duplicate_of(comm);
    MPI_Comm_rank(comm, &work_.rank);
    MPI_Comm_size(comm, &count_);
    for (int r = 0; r < count_; ++r) all_.ranks.push_back(r);
    work_.watch.begin(duplicate_of(comm));
  }

  /// Returns when all ranks have called it. If an exception unwinds this rank, the other ranks have 2.5 seconds to
  /// follow. Otherwise ends all ranks, because they may wait for this rank in MPI forever.
  void leave(bool by_exception) {
    if (count_ == 1) return;
    try {
      if (work_.watch.leave(by_exception ? 2.5 : std::numeric_limits<double>::infinity())) return;
    } catch (const error& failure) {
      abort_mpi(failure, all_.comm);
    }
    const error failure(
        "an exception passes an mpi_communicator that others still use, and would wait in: all ranks end. "
        "To see its text, catch it before, or use launch",
        work_.rank);
    abort_mpi(failure, all_.comm);
  }
  /// Returns when all ranks have arrived with the same subject.
  void meet(const meeting_subject& subject) {
    all_.begin(subject, work_);
    roll_call({all_, work_, work_.requests}, count_, work_.rank, [](std::int64_t r) { return r; });
  }
  static std::string describe_barrier(const mesh_shape*, dtype, const void*) { return "a barrier"; }
  static std::string describe_exchange(const mesh_shape*, dtype, const void*) { return "an exchange of blocks"; }
  static std::string describe_allocation(const mesh_shape*, dtype, const void* bytes) {
    return "the start of a step, for which " + std::to_string(*static_cast<const std::size_t*>(bytes)) + " bytes are shared";
  }

  template <class Route>
  struct routed {
    mpi_group* group;
    Route route;
    template <class Descriptor, class... Joint>
    routed(mpi_group& over, const mesh_shape& mesh, const Descriptor& d, Joint... joint)
        : group(&over), route(over.new_route(mesh, d, joint...)) {}
  };
  /// Makes the route of a collective that is not cached. The cache may evict other routes, so collectives under way are
  /// finished first.
  template <class Route, class Descriptor, class... Joint>
  routed<Route> new_route(const mesh_shape& mesh, const Descriptor& d, dtype type, Joint... joint) {
    for (auto& group : groups_) group->finish_all();
    return routed<Route>(group_for(mesh, d, type), mesh, d, joint...);
  }
  void find_routes(const mesh_shape& mesh, span<const reduction> all, dtype type, const reduction_route** routes) {
    const auto find = [&](const reduction& r) -> const auto& {
      return reductions_.find(mesh, r, [&] { return new_route<reduction_route>(mesh, r, type); });
    };
    for (const auto& r : all) find(r);  // makes all routes first, as in start
    for (std::size_t k = 0; k < all.size(); ++k) routes[k] = &find(all[k]).route;
  }
  template <class Descriptor>
  mpi_group& group_for(const mesh_shape& mesh, const Descriptor& d, dtype type) {
    return group_over(mesh, d.axes, [&] { return subject_of(mesh, d, type); });
  }
  /// Returns the group over these axes, and makes it if it is new. `subject()` describes the collective that needs the
  /// group.
  template <class Subject>
  mpi_group& group_over(const mesh_shape& mesh, axis_mask axes, Subject subject) {
    for (const auto& known : groups_)
      if (known->is_over(mesh, axes)) return *known;
    all_.begin(subject(), work_);
    groups_.push_back(std::make_unique<mpi_group>(all_, mesh, axes, work_));
    return *groups_.back();
  }

  mpi_channel all_;
  int count_ = 0;
  int exceptions_ = std::uncaught_exceptions();
  mpi_workspace work_{};
  std::vector<std::unique_ptr<mpi_group>> groups_;
  descriptor_cache<movement, routed<movement_route>> movements_, joint_movements_;
  descriptor_cache<reduction, routed<reduction_route>> reductions_;
};

}  // namespace gspmd::detail
