// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/mpi/call.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/comm/mpi.hpp"
#include "gspmd/detail/transport/mpi/arrival.hpp"
#include "gspmd/detail/transport/mpi/collectives.hpp"
#include "gspmd/detail/transport/mpi/kept.hpp"
#include "gspmd/detail/transport/mpi/watch.hpp"
#include "gspmd/error.hpp"

#if !defined(GSPMD_MPI_ONCE)
#define GSPMD_MPI_ONCE(...) static_assert(true)
#endif

namespace gspmd {

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
    all_.back().comm->own_->is_kept = true;
    return *all_.back().comm;
  }
  static void rest(mpi_communicator& comm) { comm.own_->rest(); }
  /// Returns the watch over the ranks of the user's communicator, or null before the first launch.
  [[nodiscard]] mpi_watch* watch() const { return all_.empty() ? nullptr : &all_.front().comm->own_->watch(); }
  /// Announces that this process will call no further launch on any communicator. Returns when all ranks of all these
  /// communicators have announced it, in any order.
  static void leave(const std::vector<std::unique_ptr<kept_communicators>>& all) {
    std::vector<mpi_watch*> waiting;
    for (const auto& kept : all)
      for (const auto& e : kept->all_)
        if (auto& watch = e.comm->own_->watch(); e.comm->device_count() > 1 && !watch.has_failed()) waiting.push_back(&watch);
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

/// Returns the communicator of a launch with this number of devices. An error ends all ranks.
inline mpi_communicator& communicator_for(const mpi& backend, int devices) {
  try {
    auto& comm = mpi_kept<kept_communicators>::with(backend.comm).of(backend);
    require_devices(comm, devices);
    return comm;
  } catch (const error& failure) {
    int count = 1;
    MPI_Comm_size(backend.comm, &count);
    if (count > 1) end_all_ranks(failure, backend.comm);
    throw;
  }
}

}  // namespace detail

template <class Once>
void mpi_communicator::begin(MPI_Comm comm, const mpi_options& options) {
  static std::atomic<std::uint64_t> last{0};
  detail::require_communicator(comm);
  own_ = new detail::mpi_collectives(comm, options, detail::watch_of(comm));
  rank_ = own_->rank();
  count_ = own_->count();
  serial_ = ++last;
}
template <class Once>
void mpi_communicator::end() {
  delete own_;
}
template <class Once>
void mpi_communicator::meet() {
  own_->barrier();
}
template <class Once>
std::shared_ptr<std::byte> mpi_communicator::share(std::size_t bytes) {
  return own_->allocate(bytes);
}
template <class Once>
void mpi_communicator::move_elements(const detail::mesh_shape& mesh, const detail::movement& m, dtype type, const void* in,
                                     void* out) {
  own_->move(mesh, m, type, in, out);
}
template <class Once>
void mpi_communicator::start_movements(const detail::mesh_shape& mesh, detail::span<const detail::movement> all, dtype type,
                                       const void* const* in, void* const* out) {
  own_->start(mesh, all, type, in, out);
}
template <class Once>
void mpi_communicator::start_reductions(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, dtype type,
                                        const detail::row_combiner& op, const void* const* in, void* const* out) {
  own_->start(mesh, all, type, op, in, out);
}
template <class Once>
void mpi_communicator::finish_list(const detail::mesh_shape& mesh, detail::axis_mask axes, const void* out) {
  own_->finish(mesh, axes, out);
}
template <class Once>
void mpi_communicator::go_on_with_all() {
  own_->go_on();
}
template <class Once>
void mpi_communicator::reduce_elements(const detail::mesh_shape& mesh, const detail::reduction& r, dtype type,
                                       const detail::row_combiner& op, const void* in, void* out) {
  own_->reduce(mesh, r, type, op, in, out);
}
template <class Once>
void mpi_communicator::reduce_list(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, dtype type,
                                   const detail::row_combiner& op, const void* const* in, void* const* out) {
  own_->reduce_together(mesh, all, type, op, in, out);
}
template <class Once>
void mpi_communicator::shift_bytes(const detail::mesh_shape& mesh, const detail::ring& r, const detail::ring_buffers& ahead,
                                   const detail::ring_buffers* behind) {
  own_->shift(mesh, r, ahead, behind);
}
template <class Once>
void mpi_communicator::exchange_blocks(std::int64_t bytes_per_elem, const void* in, const std::int64_t* sent, void* out,
                                       const std::int64_t* received) {
  own_->exchange(bytes_per_elem, in, sent, out, received);
}

namespace detail {

template <class Once>
void agree_over_mpi(const mpi& backend, const error* failure) {
  int is_initialized = 0, is_finalized = 0, rank = 0, count = 1;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_initialized != 0 && is_finalized == 0) require_communicator(backend.comm);
  if (is_initialized != 0 && is_finalized == 0) {
    MPI_Comm_rank(backend.comm, &rank);
    MPI_Comm_size(backend.comm, &count);
    int lowest[2] = {failure != nullptr ? rank : count, failure == nullptr ? rank : count};  // failed, not failed
    minimum_of_all_ranks(lowest, 2, backend.comm, watch_of(backend.comm));
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

template <class Once>
void launch_over_mpi(const mpi& backend, int devices, void* f, void (*call)(void* f, mpi_communicator& comm)) {
  require_communicator(backend.comm);
  auto& comm = communicator_for(backend, devices);
  if (devices == 1) {
    call(f, comm);
    return kept_communicators::rest(comm);
  }
  try {
    call(f, comm);
    kept_communicators::rest(comm);
  } catch (const error& failure) {
    end_all_ranks(failure.rank() < 0 ? failure.with_rank(comm.device(0)) : failure, backend.comm);
  } catch (const std::exception& failure) {
    end_all_ranks(error(failure.what(), comm.device(0)), backend.comm);
  } catch (...) {
    end_all_ranks(error("an exception that is not a std::exception", comm.device(0)), backend.comm);
  }
}

}  // namespace detail

GSPMD_MPI_ONCE(void mpi_communicator::begin<detail::once>(MPI_Comm, const mpi_options&));
GSPMD_MPI_ONCE(void mpi_communicator::end<detail::once>());
GSPMD_MPI_ONCE(void mpi_communicator::meet<detail::once>());
GSPMD_MPI_ONCE(std::shared_ptr<std::byte> mpi_communicator::share<detail::once>(std::size_t));
GSPMD_MPI_ONCE(void mpi_communicator::move_elements<detail::once>(const detail::mesh_shape&, const detail::movement&, dtype,
                                                                  const void*, void*));
GSPMD_MPI_ONCE(void mpi_communicator::start_movements<detail::once>(const detail::mesh_shape&,
                                                                    detail::span<const detail::movement>, dtype,
                                                                    const void* const*, void* const*));
GSPMD_MPI_ONCE(void mpi_communicator::start_reductions<detail::once>(const detail::mesh_shape&,
                                                                     detail::span<const detail::reduction>, dtype,
                                                                     const detail::row_combiner&, const void* const*,
                                                                     void* const*));
GSPMD_MPI_ONCE(void mpi_communicator::finish_list<detail::once>(const detail::mesh_shape&, detail::axis_mask, const void*));
GSPMD_MPI_ONCE(void mpi_communicator::go_on_with_all<detail::once>());
GSPMD_MPI_ONCE(void mpi_communicator::reduce_elements<detail::once>(const detail::mesh_shape&, const detail::reduction&, dtype,
                                                                    const detail::row_combiner&, const void*, void*));
GSPMD_MPI_ONCE(void mpi_communicator::reduce_list<detail::once>(const detail::mesh_shape&, detail::span<const detail::reduction>,
                                                                dtype, const detail::row_combiner&, const void* const*,
                                                                void* const*));
GSPMD_MPI_ONCE(void mpi_communicator::shift_bytes<detail::once>(const detail::mesh_shape&, const detail::ring&,
                                                                const detail::ring_buffers&, const detail::ring_buffers*));
GSPMD_MPI_ONCE(void mpi_communicator::exchange_blocks<detail::once>(std::int64_t, const void*, const std::int64_t*, void*,
                                                                    const std::int64_t*));
GSPMD_MPI_ONCE(void detail::agree_over_mpi<detail::once>(const mpi&, const error*));
GSPMD_MPI_ONCE(void detail::launch_over_mpi<detail::once>(const mpi&, int, void*, void (*)(void*, mpi_communicator&)));

}  // namespace gspmd
