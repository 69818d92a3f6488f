// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/kernels/combine_rows.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd {

namespace detail {
class thread_session;
}  // namespace detail

/// One device of a launch on threads.
///
/// A collective has three steps:
///  1. The device publishes the pointers of its buffers, arrives, and waits for the other members of the group.
///  2. The device reads the buffers of the other members in place (detail/transport/shared_memory.hpp).
///  3. The device arrives again and waits, so that no member changes a buffer that another member still reads.
/// If a shard of `move` or `reduce` has at most detail::mail_bytes, the device publishes the elements instead of
/// pointers, and step 3 is not needed. A repeated collective allocates nothing, unless other collectives evicted its
/// copies (kept_copies.hpp).
///
/// **Threads.** Each device has its own communicator. Only the thread of the device may use it, and only until the
/// device's function returns.
class threads_communicator {
 public:
  static constexpr bool shares_memory = true;  // a device may write the caller's memory

  threads_communicator(detail::thread_session& session, int rank, int count)
      : session_(session), memberships_(new_memberships()), rank_(rank), count_(count) {}
  threads_communicator(const threads_communicator&) = delete;
  threads_communicator& operator=(const threads_communicator&) = delete;

  [[nodiscard]] int device_count() const { return count_; }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int) const { return rank_; }

  template <class T>
  void move(const detail::mesh_shape& mesh, const detail::movement& m, const T* const* in, T* const* out) {
    move_elements(mesh, m, detail::dtype_of<T>(), in[0], out[0]);
  }

  void move(const detail::mesh_shape& mesh, const detail::movement& m, dtype type, const void* const* in, void* const* out) {
    move_elements(mesh, m, type, in[0], out[0]);
  }

  template <class T>
  void start(const detail::mesh_shape& mesh, detail::span<const detail::movement> all, const T* const* in, T* const* out) {
    start_list({&mesh, all, {}, {}, detail::subject_of(mesh, all[0], detail::dtype_of<T>()), take_movements}, in, out);
  }
  void start(const detail::mesh_shape& mesh, detail::span<const detail::movement> all, dtype type, const void* const* in,
             void* const* out) {
    start_list({&mesh, all, {}, {}, detail::subject_of(mesh, all[0], type), take_movements}, in, out);
  }
  template <class T>
  void start(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, const T* const* in, T* const* out) {
    const auto op = detail::combiner_of<T>(all[0].reduced_by);
    start_list({&mesh, {}, all, op, detail::subject_of(mesh, all[0], detail::dtype_of<T>()), take_reductions}, in, out);
  }
  void start(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, dtype type,
             const detail::row_combiner& op, const void* const* in, void* const* out) {
    start_list({&mesh, {}, all, op, detail::subject_of(mesh, all[0], type), take_reductions}, in, out);
  }
  template <class T, class List>
  void finish(const detail::mesh_shape& mesh, const List& all, const T* const*, T* const* out) {
    finish_started(mesh, all[0].axes, out[0]);
  }

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
    start(mesh, all, in, out);
    finish(mesh, all, in, out);
  }
  void reduce_together(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, dtype type,
                       const detail::row_combiner& op, const void* const* in, void* const* out) {
    start(mesh, all, type, op, in, out);
    finish(mesh, all, in, out);
  }

  template <class = detail::once>
  void shift(const detail::mesh_shape& mesh, const detail::ring& r, const detail::ring_buffers& ahead,
             const detail::ring_buffers* behind);

  template <class = detail::once>
  void barrier();

  /// Every device sends each device a block of elements. The blocks in in[0] follow each other: sent[0][k] elements for
  /// device k. The device stores the blocks that it receives in out[0] in the same order: received[0][k] elements from
  /// device k.
  ///
  /// **Communication.** Collective over all devices.
  /// **Errors.** If a device sends another number of elements than the receiver expects, gspmd::error. The receiver
  /// copies nothing then.
  template <class T>
  void exchange(const T* const* in, const std::int64_t* const* sent, T* const* out, const std::int64_t* const* received) {
    exchange_blocks(sizeof(T), in[0], sent[0], out[0], received[0]);
  }

  /// Declares that this device no longer reads buffers of other devices. launch() calls it at the end.
  template <class = detail::once>
  void stop();

 private:
  struct membership;   // of this device in one group
  struct memberships;  // in all groups
  /// A started list of movements or reductions: this device has published its buffers, and has not read those of the
  /// other members yet. A group has at most one list under way. Every later collective of the group finishes it first.
  struct list_under_way {
    const detail::mesh_shape* mesh;
    detail::span<const detail::movement> movements;
    detail::span<const detail::reduction> reductions;
    detail::row_combiner op;  // of the reductions
    detail::meeting_subject subject;
    void (*take)(const list_under_way& u, membership& mine, unsigned parity);  // runs when all have arrived
    const void* in[detail::most_moved_together] = {};
    void* out[detail::most_moved_together] = {};

    [[nodiscard]] std::size_t count() const { return movements.size() + reductions.size(); }
  };
  template <class = detail::once>
  static std::unique_ptr<memberships, void (*)(memberships*)> new_memberships();

  template <class = detail::once>
  membership& everyone();

  template <class = detail::once>
  membership& membership_of(const detail::mesh_shape& mesh, detail::axis_mask axes);

  template <class = detail::once>
  static void take_movements(const list_under_way& u, membership& mine, unsigned parity);
  template <class = detail::once>
  static void take_reductions(const list_under_way& u, membership& mine, unsigned parity);

  /// Arrives with these pointers and waits for the group. Returns the parity of the lanes that hold the pointers of all
  /// members. `subject` must live until this device has passed the meeting or has stopped.
  template <class = detail::once>
  unsigned meet(membership& mine, const detail::meeting_subject& subject, const void* in, void* out);

  /// Arrives with these pointers and does not wait, so that the device can prepare its own work in the meantime. If
  /// `bytes` fit, copies the elements of `in` into the lane as mail and returns true: no second meeting is needed then.
  template <class = detail::once>
  bool arrive_with_mail(membership& mine, const detail::meeting_subject& subject, const void* in, void* out, std::int64_t bytes);

  /// Arrives and waits for the group. The caller has written the pointers to the lane, after finish_elements().
  template <class = detail::once>
  unsigned arrive(membership& mine, const detail::meeting_subject& subject);
  template <class = detail::once>
  void arrive_alone(membership& mine, const detail::meeting_subject& subject);
  template <class = detail::once>
  unsigned wait(const membership& mine, const detail::meeting_subject& subject);

  /// Reports a failure, and returns only when no device reads the buffers of this device any more. Always throws.
  template <class = detail::once>
  [[noreturn, gnu::noinline, gnu::cold]] void stop_all(const detail::meeting_subject& subject, std::string text);
  template <class = detail::once>
  [[noreturn]] void leave();

  template <class = detail::once>
  void move_elements(const detail::mesh_shape& mesh, const detail::movement& m, dtype type, const void* in, void* out);
  template <class T>
  void start_list(list_under_way made, const T* const* in, T* const* out) {
    std::copy_n(in, made.count(), made.in);
    std::copy_n(out, made.count(), made.out);
    start_elements(made);
  }
  template <class = detail::once>
  void start_elements(const list_under_way& made);
  /// Finishes every list that is under way in the group, for all sets of axes that name the same devices.
  template <class = detail::once>
  void finish_elements(const membership& group);
  template <class = detail::once>
  void finish_list(membership& mine);
  /// Finishes the list under way that writes to `out`, if there is one.
  template <class = detail::once>
  void finish_started(const detail::mesh_shape& mesh, detail::axis_mask axes, const void* out);

  template <class = detail::once>
  void reduce_elements(const detail::mesh_shape& mesh, const detail::reduction& r, dtype type, const detail::row_combiner& op,
                       const void* in, void* out);
  template <class = detail::once>
  void exchange_blocks(std::int64_t bytes_per_elem, const void* in, const std::int64_t* sent, void* out,
                       const std::int64_t* received);

  detail::thread_session& session_;
  std::unique_ptr<memberships, void (*)(memberships*)> memberships_;
  int rank_;
  int count_;  // of devices
  bool stopped_ = false;
};

/// Backend: one thread per device, in this process. More devices than cores work, but slowly.
struct threads {};

namespace detail {

/// Launches any function on threads; `call(f, comm)` calls it. The function's type is erased because programs launch
/// many functions.
template <class = once>
[[gnu::noinline, gnu::cold]] void launch_threads(int devices, void* f, void (*call)(void* f, threads_communicator& group));

}  // namespace detail

/// Calls `f(comm)` once for each of `devices` devices, and returns when all calls have returned.
///
/// **Errors.** If a device throws, the other devices leave their next collective by an exception. launch then throws
/// the first exception. A gspmd::error has the rank of the device that failed.
/// **Threads.** Each device has its own thread; device 0 has the calling thread. All devices call the same `f`. Until
/// launch returns, the BLAS uses one thread for each device.
template <class F>
void launch(threads, int devices, F&& f) {
  using function = std::remove_reference_t<F>;
  detail::launch_threads(devices, const_cast<void*>(static_cast<const void*>(std::addressof(f))),
                         [](void* given, threads_communicator& group) { (*static_cast<function*>(given))(group); });
}

}  // namespace gspmd

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/comm/threads.ipp"
#endif
