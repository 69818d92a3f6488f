// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/mpi/call.hpp"  // first: it configures and includes mpi.h

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/kernels/combine_rows.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/transport/mpi/options.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"
#include "gspmd/error.hpp"

namespace gspmd {

namespace detail {
class mpi_collectives;
class kept_communicators;
}  // namespace detail

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
  explicit mpi_communicator(MPI_Comm comm, mpi_options options = {}) { begin(comm, options); }
  mpi_communicator(const mpi_communicator&) = delete;
  mpi_communicator& operator=(const mpi_communicator&) = delete;
  /// Waits for all ranks and frees the duplicates; collective if called before MPI_Finalize. After MPI_Finalize it
  /// frees nothing in MPI.
  ~mpi_communicator() { end(); }

  [[nodiscard]] int device_count() const { return count_; }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int) const { return rank_; }
  /// Returns a number that no other communicator of this process has.
  [[nodiscard]] std::uint64_t serial() const { return serial_; }
  void barrier() { meet(); }

  /// Returns zeroed memory, aligned to a cache line, that the other processes of the node can read in place.
  ///
  /// Collectives between buffers in this memory cost the same as between threads, and MPI transfers no elements.
  /// Releasing the memory is not collective: after all processes have released it, a later call reuses or frees it. The
  /// memory may outlive the communicator.
  ///
  /// **Communication.** Collective over all processes. All processes pass the same size.
  /// **Errors.** If the sizes differ, gspmd::error, the same on all processes.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) { return share(bytes); }

  template <class T>
  void move(const detail::mesh_shape& mesh, const detail::movement& m, const T* const* in, T* const* out) {
    move_elements(mesh, m, detail::dtype_of<T>(), in[0], out[0]);
  }
  void move(const detail::mesh_shape& mesh, const detail::movement& m, dtype type, const void* const* in, void* const* out) {
    move_elements(mesh, m, type, in[0], out[0]);
  }

  template <class T>
  void start(const detail::mesh_shape& mesh, detail::span<const detail::movement> all, const T* const* in, T* const* out) {
    const buffers of(all.size(), in, out);
    start(mesh, all, detail::dtype_of<T>(), of.in, of.out);
  }
  void start(const detail::mesh_shape& mesh, detail::span<const detail::movement> all, dtype type, const void* const* in,
             void* const* out) {
    start_movements(mesh, all, type, in, out);
  }
  template <class T>
  void start(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, const T* const* in, T* const* out) {
    const buffers of(all.size(), in, out);
    start(mesh, all, detail::dtype_of<T>(), detail::combiner_of<T>(all[0].reduced_by), of.in, of.out);
  }
  void start(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, dtype type,
             const detail::row_combiner& op, const void* const* in, void* const* out) {
    start_reductions(mesh, all, type, op, in, out);
  }
  template <class T, class List>
  void finish(const detail::mesh_shape& mesh, const List& all, const T* const*, T* const* out) {
    finish_list(mesh, all[0].axes, out[0]);
  }
  void go_on() { go_on_with_all(); }

  template <class T>
  void reduce(const detail::mesh_shape& mesh, const detail::reduction& r, const T* const* in, T* const* out) {
    reduce_elements(mesh, r, detail::dtype_of<T>(), detail::combiner_of<T>(r.reduced_by), in[0], out[0]);
  }
  void reduce(const detail::mesh_shape& mesh, const detail::reduction& r, dtype type, const detail::row_combiner& op,
              const void* const* in, void* const* out) {
    reduce_elements(mesh, r, type, op, in[0], out[0]);
  }
  template <class T>
  void reduce_together(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, const T* const* in,
                       T* const* out) {
    const buffers of(all.size(), in, out);
    reduce_together(mesh, all, detail::dtype_of<T>(), detail::combiner_of<T>(all[0].reduced_by), of.in, of.out);
  }
  void reduce_together(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, dtype type,
                       const detail::row_combiner& op, const void* const* in, void* const* out) {
    reduce_list(mesh, all, type, op, in, out);
  }

  void shift(const detail::mesh_shape& mesh, const detail::ring& r, const detail::ring_buffers& ahead,
             const detail::ring_buffers* behind) {
    shift_bytes(mesh, r, ahead, behind);
  }

  /// Every device sends each device a block of elements. The blocks in in[0] follow each other: sent[0][k] elements for
  /// device k. The device stores the blocks that it receives in out[0] in the same order: received[0][k] elements from
  /// device k.
  ///
  /// **Communication.** Collective over all devices.
  template <class T>
  void exchange(const T* const* in, const std::int64_t* const* sent, T* const* out, const std::int64_t* const* received) {
    exchange_blocks(sizeof(T), in[0], sent[0], out[0], received[0]);
  }

 private:
  friend class detail::kept_communicators;

  /// The buffers of a list of movements or reductions, without their element type.
  struct buffers {
    const void* in[detail::most_moved_together];
    void* out[detail::most_moved_together];
    template <class T>
    buffers(std::size_t count, const T* const* from, T* const* to) {
      std::copy_n(from, count, in);
      std::copy_n(to, count, out);
    }
  };

  // These functions are defined in comm/mpi.ipp. They do not depend on element types, so
  // gspmd::precompiled_mpi compiles them once.
  template <class = detail::once>
  void begin(MPI_Comm comm, const mpi_options& options);
  template <class = detail::once>
  void end();
  template <class = detail::once>
  void meet();
  template <class = detail::once>
  std::shared_ptr<std::byte> share(std::size_t bytes);
  template <class = detail::once>
  void move_elements(const detail::mesh_shape& mesh, const detail::movement& m, dtype type, const void* in, void* out);
  template <class = detail::once>
  void start_movements(const detail::mesh_shape& mesh, detail::span<const detail::movement> all, dtype type,
                       const void* const* in, void* const* out);
  template <class = detail::once>
  void start_reductions(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, dtype type,
                        const detail::row_combiner& op, const void* const* in, void* const* out);
  template <class = detail::once>
  void finish_list(const detail::mesh_shape& mesh, detail::axis_mask axes, const void* out);
  template <class = detail::once>
  void go_on_with_all();
  template <class = detail::once>
  void reduce_elements(const detail::mesh_shape& mesh, const detail::reduction& r, dtype type, const detail::row_combiner& op,
                       const void* in, void* out);
  template <class = detail::once>
  void reduce_list(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, dtype type,
                   const detail::row_combiner& op, const void* const* in, void* const* out);
  template <class = detail::once>
  void shift_bytes(const detail::mesh_shape& mesh, const detail::ring& r, const detail::ring_buffers& ahead,
                   const detail::ring_buffers* behind);
  template <class = detail::once>
  void exchange_blocks(std::int64_t bytes_per_elem, const void* in, const std::int64_t* sent, void* out,
                       const std::int64_t* received);

  detail::mpi_collectives* own_ = nullptr;  // owned
  int rank_ = 0, count_ = 0;
  std::uint64_t serial_ = 0;
};

/// Backend: one device per process of `comm`. The caller calls MPI_Init and MPI_Finalize.
struct mpi {
  MPI_Comm comm = MPI_COMM_WORLD;
  mpi_options options = {};
};

namespace detail {
template <class = once>
void agree_over_mpi(const mpi& backend, const error* failure);
/// Launches any function over MPI; `call(f, comm)` calls it.
template <class = once>
void launch_over_mpi(const mpi& backend, int devices, void* f, void (*call)(void* f, mpi_communicator& comm));
}  // namespace detail

/// Throws the same error on all processes if some processes found one before a collective: the error of the lowest rank
/// that failed.
///
/// `failure` is null on a process without an error. If all processes failed, each throws its own error. Otherwise all
/// processes throw: if ranks 1 and 3 of 4 failed, all four throw the error of rank 1.
///
/// **Communication.** Collective over `backend.comm`.
inline void agree(const mpi& backend, const error* failure) { detail::agree_over_mpi(backend, failure); }

/// Calls `f(comm)` once on every process of `backend.comm`.
///
/// The communicator and its groups are kept for the next launch on this MPI communicator, until MPI_Comm_free or
/// MPI_Finalize. At most 64 MiB of shared memory per process are kept. All ranks must call MPI_Comm_free. MPI_Finalize
/// waits for all ranks; if a rank still waits in run or launch, MPI_Finalize prints the rank that leaves and ends all
/// ranks. The BLAS keeps its threads: if ranks share cores, bind them to cores or set OPENBLAS_NUM_THREADS.
///
/// **Communication.** Collective over `backend.comm`.
/// **Errors.** If the number of processes is not `devices`, their options differ, or `f` throws, rank 0 prints the text
/// to stderr and ends all processes by MPI_Abort with status 1. If `f` throws on other ranks only, one of them does so
/// after 2 s: the others may wait for it. With one process, passes the exception on.
template <class F>
void launch(const mpi& backend, int devices, F&& f) {
  using function = std::remove_reference_t<F>;
  detail::launch_over_mpi(backend, devices, const_cast<void*>(static_cast<const void*>(std::addressof(f))),
                          [](void* given, mpi_communicator& comm) { (*static_cast<function*>(given))(comm); });
}

}  // namespace gspmd

// See detail/support/precompiled.hpp. GSPMD_PRECOMPILED_MPI is another macro than GSPMD_PRECOMPILED, because programs
// that link gspmd::precompiled need not link gspmd::precompiled_mpi.
#if !defined(GSPMD_PRECOMPILED_MPI)
#include "gspmd/comm/mpi.ipp"
#endif
