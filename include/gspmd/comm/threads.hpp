// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/kernels/blas_threads.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/group_key.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"
#include "gspmd/detail/transport/threads/kept_copies.hpp"
#include "gspmd/detail/transport/threads/thread_group.hpp"
#include "gspmd/error.hpp"

namespace gspmd {

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

  threads_communicator(detail::thread_session& session, int rank) : session_(session), rank_(rank) {}
  threads_communicator(const threads_communicator&) = delete;
  threads_communicator& operator=(const threads_communicator&) = delete;

  [[nodiscard]] int device_count() const { return session_.count(); }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int) const { return rank_; }

  template <class T>
  void move(const detail::mesh_shape& mesh, const detail::movement& m, const T* const* in, T* const* out) {
    move_elements(mesh, m, detail::dtype_of<T>(), in[0], out[0]);
  }

  template <class T>
  void start(const detail::mesh_shape& mesh, detail::span<const detail::movement> all, const T* const* in, T* const* out) {
    start_list({&mesh, all, {}, {}, detail::subject_of(mesh, all[0], detail::dtype_of<T>()), take_movements}, in, out);
  }
  template <class T>
  void start(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, const T* const* in, T* const* out) {
    const auto op = detail::combiner_of<T>(all[0].reduced_by);
    start_list({&mesh, {}, all, op, detail::subject_of(mesh, all[0], detail::dtype_of<T>()), take_reductions}, in, out);
  }
  template <class T, class List>
  void finish(const detail::mesh_shape& mesh, const List& all, const T* const*, T* const* out) {
    if (auto& mine = membership_of(mesh, all[0].axes); mine.under_way && mine.under_way->out[0] == out[0]) finish_elements(mine);
  }

  template <class T>
  void reduce(const detail::mesh_shape& mesh, const detail::reduction& r, const T* const* in, T* const* out) {
    reduce_elements(mesh, r, detail::dtype_of<T>(), detail::combiner_of<T>(r.reduced_by), in[0], out[0]);
  }

  template <class T>
  void reduce_together(const detail::mesh_shape& mesh, detail::span<const detail::reduction> all, const T* const* in,
                       T* const* out) {
    start(mesh, all, in, out);
    finish(mesh, all, in, out);
  }

  void shift(const detail::mesh_shape& mesh, const detail::ring& r, const detail::ring_buffers& ahead,
             const detail::ring_buffers* behind) {
    auto& mine = membership_of(mesh, r.mask());
    const auto bytes = static_cast<std::size_t>(r.bytes);
    const auto subject = detail::subject_of(mesh, r);
    const auto parity = meet(mine, subject, ahead.from(0), behind != nullptr ? const_cast<void*>(behind->from(0)) : nullptr);
    std::memcpy(ahead.to(0), mine.lane(r.member_ahead(mesh, mine.me, 1), parity).in, bytes);
    if (behind != nullptr) std::memcpy(behind->to(0), mine.lane(r.member_ahead(mesh, mine.me, -1), parity).out, bytes);
    meet(mine, subject, nullptr, nullptr);
  }

  void barrier() {
    static constexpr detail::meeting_subject subject{1, nullptr, nullptr, nullptr, describe_barrier};
    meet(everyone(), subject, nullptr, nullptr);
  }

  /// Every device sends each device a block of elements. The blocks in in[0] follow each other: sent[0][k] elements for
  /// device k. The device stores the blocks that it receives in out[0] in the same order: received[0][k] elements from
  /// device k.
  ///
  /// **Communication.** Collective over all devices.
  /// **Errors.** If a device sends another number of elements than the receiver expects, gspmd::error. The receiver
  /// copies nothing then.
  template <class T>
  void exchange(const T* const* in, const std::int64_t* const* sent, T* const* out, const std::int64_t* const* received) {
    auto& all = everyone();
    static constexpr detail::meeting_subject subject{2 + sizeof(T), nullptr, nullptr, nullptr, describe_exchange};
    const auto parity = meet(all, subject, in[0], const_cast<std::int64_t*>(sent[0]));  // the other devices only read the counts
    for (int k = 0; k < device_count(); ++k)
      if (const auto comes = static_cast<const std::int64_t*>(all.lane(k, parity).out)[rank_]; comes != received[0][k])
        stop_all(subject, detail::different_blocks(k, comes, rank_, received[0][k], sizeof(T)));
    T* to = out[0];
    for (int k = 0; k < device_count(); ++k) {
      const auto& lane = all.lane(k, parity);
      const auto* counts = static_cast<const std::int64_t*>(lane.out);
      const auto* from = static_cast<const T*>(lane.in);
      for (int before = 0; before < rank_; ++before) from += counts[before];
      std::copy_n(from, received[0][k], to);
      to += received[0][k];
    }
    meet(all, subject, nullptr, nullptr);
  }

  /// Declares that this device no longer reads buffers of other devices. launch() calls it at the end.
  void stop() {
    if (!stopped_) session_.stop();
    stopped_ = true;
  }

 private:
  struct membership;
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
  /// The membership of this device in one group.
  struct membership {
    std::optional<detail::group_key> key;  // empty: the group of all devices
    detail::coordinates me;
    detail::thread_group* group = nullptr;
    std::int64_t self = 0;
    std::optional<list_under_way> under_way = {};
    detail::kept_copies copies = {};
    detail::kept_boxes boxes = {};

    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(group->devices.size()); }
    [[nodiscard]] detail::meeting_slot& slot(std::int64_t j) const { return group->slots[static_cast<std::size_t>(j)]; }
    [[nodiscard]] detail::meeting_lane& lane(std::int64_t j, unsigned parity) const { return slot(j).lanes[parity]; }
    /// Returns the input of member j; `own` is the input of this device. If the elements are mail, returns the mail in
    /// the lane, because the result may overwrite the input buffer. Else the device does not read its own lane: the
    /// other members have just fetched that memory.
    [[nodiscard]] const void* input(std::int64_t j, unsigned parity, const void* own, bool is_mail) const {
      if (is_mail) return lane(j, parity).mail;
      return j == self ? own : lane(j, parity).in;
    }
    /// Returns a function from the number of a member to the member's buffer k of a list under way.
    template <class Buffer>
    [[nodiscard]] auto buffers(Buffer detail::meeting_lane::*shown, std::size_t k, unsigned parity) const {
      return [=, this](std::int64_t j) { return static_cast<const Buffer*>(lane(j, parity).*shown)[k]; };
    }
  };

  template <class = detail::once>
  membership& everyone();

  template <class = detail::once>
  membership& membership_of(const detail::mesh_shape& mesh, detail::axis_mask axes);

  static void take_movements(const list_under_way& u, membership& mine, unsigned parity) {
    const auto bytes_per_elem = detail::bytes_of(u.subject.type);
    for (std::size_t k = 0; k < u.count(); ++k) {
      const auto& m = u.movements[k];
      detail::kept_copies::move(mine.copies.find(*u.mesh, m, mine.me, bytes_per_elem), *u.mesh, m, mine.me,
                                mine.buffers(&detail::meeting_lane::in, k, parity), u.out[k], bytes_per_elem);
    }
  }
  static void take_reductions(const list_under_way& u, membership& mine, unsigned parity) {
    for (std::size_t k = 0; k < u.count(); ++k)
      if (mine.size() == 1) detail::reduce_alone(*u.mesh, u.reductions[k], mine.me, u.in[k], u.out[k], u.op.elem_bytes);
      else
        detail::reduce_from_peers(u.op, *u.mesh, u.reductions[k], mine.me, mine.buffers(&detail::meeting_lane::in, k, parity),
                                  mine.buffers(&detail::meeting_lane::out, k, parity));
  }

  static std::string describe_barrier(const detail::mesh_shape*, dtype, const void*) { return "a barrier"; }
  static std::string describe_exchange(const detail::mesh_shape*, dtype, const void*) { return "an exchange of blocks"; }

  /// Arrives with these pointers and waits for the group. Returns the parity of the lanes that hold the pointers of all
  /// members. `subject` must live until this device has passed the meeting or has stopped.
  template <class = detail::once>
  unsigned meet(membership& mine, const detail::meeting_subject& subject, const void* in, void* out);

  /// Arrives with these pointers and does not wait, so that the device can prepare its own work in the meantime. If
  /// `bytes` fit, copies the elements of `in` into the lane as mail and returns true: no second meeting is needed then.
  template <class = detail::once>
  bool arrive_with_mail(membership& mine, const detail::meeting_subject& subject, const void* in, void* out, std::int64_t bytes);

  /// Arrives and waits for the group. The caller has written the pointers to the lane, after finish_elements().
  unsigned arrive(membership& mine, const detail::meeting_subject& subject) {
    arrive_alone(mine, subject);
    return wait(mine, subject);
  }
  void arrive_alone(membership& mine, const detail::meeting_subject& subject) {
    if (session_.has_failed()) leave();
    mine.slot(mine.self).next_lane().subject = &subject;
    detail::arrive_alone(mine.slot(mine.self), subject.number);
  }
  unsigned wait(const membership& mine, const detail::meeting_subject& subject) {
    if (stopped_) leave();  // members that arrived earlier may have left, and their buffers may be gone
    return detail::wait_for_all(
        mine.size(), mine.self, subject.number, session_.pauses(),
        [&](std::int64_t j) -> detail::meeting_slot& { return mine.slot(j); },
        [&](std::int64_t j, auto is_here) {
          if (session_.has_failed()) leave();
          const int device = mine.group->devices[static_cast<std::size_t>(j)];
          if (session_.has_ended(device) && !is_here()) {
            if (session_.has_failed()) leave();
            stop_all(subject, detail::never_comes(device));
          }
          std::this_thread::yield();
        },
        [&](std::int64_t j, unsigned parity) {
          const auto& theirs = *mine.lane(j, parity).subject;  // alive: that member cannot pass either
          stop_all(subject, detail::different_collectives(rank_, subject.text(), mine.group->devices[static_cast<std::size_t>(j)],
                                                          theirs.text()));
        });
  }

  /// Reports a failure, and returns only when no device reads the buffers of this device any more. Always throws.
  [[noreturn, gnu::noinline, gnu::cold]] void stop_all(const detail::meeting_subject& subject, std::string text) {
    session_.fail(std::make_exception_ptr(detail::located(error(std::move(text), rank_), subject)));
    leave();
  }

  [[noreturn]] void leave() {
    stop();
    session_.wait_until_all_stopped();
    throw detail::stopped_by_peer(rank_);
  }

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
  void finish_elements(const membership& group) {
    for (auto& known : memberships_)
      if (known.group == group.group && known.under_way) finish_list(known);
  }
  template <class = detail::once>
  void finish_list(membership& mine);

  template <class = detail::once>
  void reduce_elements(const detail::mesh_shape& mesh, const detail::reduction& r, dtype type, const detail::row_combiner& op,
                       const void* in, void* out);

  detail::thread_session& session_;
  std::list<membership> memberships_;
  std::optional<membership> everyone_;
  int rank_;
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
