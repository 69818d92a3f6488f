// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gspmd/comm/threads.hpp"
#include "gspmd/detail/kernels/blas_threads.hpp"
#include "gspmd/detail/transport/group_key.hpp"
#include "gspmd/detail/transport/meeting.hpp"
#include "gspmd/detail/transport/threads/kept_copies.hpp"
#include "gspmd/detail/transport/threads/thread_group.hpp"
#include "gspmd/error.hpp"

namespace gspmd {

/// The membership of this device in one group.
struct threads_communicator::membership {
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

/// A list, because references to its elements stay valid.
struct threads_communicator::memberships {
  std::list<membership> of_axes;
  std::optional<membership> everyone;
};

template <class Once>
std::unique_ptr<threads_communicator::memberships, void (*)(threads_communicator::memberships*)>
threads_communicator::new_memberships() {
  return {new memberships, [](memberships* all) { delete all; }};
}
GSPMD_COMPILED_ONCE(std::unique_ptr<threads_communicator::memberships, void (*)(threads_communicator::memberships*)>
                        threads_communicator::new_memberships<detail::once>());

template <class Once>
void threads_communicator::stop() {
  if (!stopped_) session_.stop();
  stopped_ = true;
}
GSPMD_COMPILED_ONCE(void threads_communicator::stop<detail::once>());

template <class Once>
[[noreturn]] void threads_communicator::leave() {
  stop();
  session_.wait_until_all_stopped();
  throw detail::stopped_by_peer(rank_);
}

template <class Once>
[[noreturn, gnu::noinline, gnu::cold]] void threads_communicator::stop_all(const detail::meeting_subject& subject,
                                                                           std::string text) {
  session_.fail(std::make_exception_ptr(detail::located(error(std::move(text), rank_), subject)));
  leave();
}

template <class Once>
void threads_communicator::arrive_alone(membership& mine, const detail::meeting_subject& subject) {
  if (session_.has_failed()) leave();
  mine.slot(mine.self).next_lane().subject = &subject;
  detail::arrive_alone(mine.slot(mine.self), subject.number);
}

template <class Once>
unsigned threads_communicator::wait(const membership& mine, const detail::meeting_subject& subject) {
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

template <class Once>
unsigned threads_communicator::arrive(membership& mine, const detail::meeting_subject& subject) {
  arrive_alone(mine, subject);
  return wait(mine, subject);
}

template <class Once>
void threads_communicator::take_movements(const list_under_way& u, membership& mine, unsigned parity) {
  const auto bytes_per_elem = detail::bytes_of(u.subject.type);
  for (std::size_t k = 0; k < u.count(); ++k) {
    const auto& m = u.movements[k];
    detail::kept_copies::move(mine.copies.find(*u.mesh, m, mine.me, bytes_per_elem), *u.mesh, m, mine.me,
                              mine.buffers(&detail::meeting_lane::in, k, parity), u.out[k], bytes_per_elem);
  }
}
GSPMD_COMPILED_ONCE(void threads_communicator::take_movements<detail::once>(const threads_communicator::list_under_way&,
                                                                            threads_communicator::membership&, unsigned));

template <class Once>
void threads_communicator::take_reductions(const list_under_way& u, membership& mine, unsigned parity) {
  for (std::size_t k = 0; k < u.count(); ++k)
    if (mine.size() == 1) detail::reduce_alone(*u.mesh, u.reductions[k], mine.me, u.in[k], u.out[k], u.op.elem_bytes);
    else
      detail::reduce_from_peers(u.op, *u.mesh, u.reductions[k], mine.me, mine.buffers(&detail::meeting_lane::in, k, parity),
                                mine.buffers(&detail::meeting_lane::out, k, parity));
}
GSPMD_COMPILED_ONCE(void threads_communicator::take_reductions<detail::once>(const threads_communicator::list_under_way&,
                                                                             threads_communicator::membership&, unsigned));

template <class Once>
void threads_communicator::finish_elements(const membership& group) {
  for (auto& known : memberships_->of_axes)
    if (known.group == group.group && known.under_way) finish_list(known);
}

template <class Once>
void threads_communicator::finish_started(const detail::mesh_shape& mesh, detail::axis_mask axes, const void* out) {
  if (auto& mine = membership_of(mesh, axes); mine.under_way && mine.under_way->out[0] == out) finish_elements(mine);
}
GSPMD_COMPILED_ONCE(void threads_communicator::finish_started<detail::once>(const detail::mesh_shape&, detail::axis_mask,
                                                                            const void*));

template <class Once>
void threads_communicator::barrier() {
  static constexpr detail::meeting_subject subject{
      1, nullptr, nullptr, nullptr, [](const detail::mesh_shape*, dtype, const void*) { return std::string("a barrier"); }};
  meet(everyone(), subject, nullptr, nullptr);
}
GSPMD_COMPILED_ONCE(void threads_communicator::barrier<detail::once>());

template <class Once>
void threads_communicator::shift(const detail::mesh_shape& mesh, const detail::ring& r, const detail::ring_buffers& ahead,
                                 const detail::ring_buffers* behind) {
  auto& mine = membership_of(mesh, r.mask());
  const auto bytes = static_cast<std::size_t>(r.bytes);
  const auto subject = detail::subject_of(mesh, r);
  const auto parity = meet(mine, subject, ahead.from(0), behind != nullptr ? const_cast<void*>(behind->from(0)) : nullptr);
  std::memcpy(ahead.to(0), mine.lane(r.member_ahead(mesh, mine.me, 1), parity).in, bytes);
  if (behind != nullptr) std::memcpy(behind->to(0), mine.lane(r.member_ahead(mesh, mine.me, -1), parity).out, bytes);
  meet(mine, subject, nullptr, nullptr);
}
GSPMD_COMPILED_ONCE(void threads_communicator::shift<detail::once>(const detail::mesh_shape&, const detail::ring&,
                                                                   const detail::ring_buffers&, const detail::ring_buffers*));

template <class Once>
void threads_communicator::exchange_blocks(std::int64_t bytes_per_elem, const void* in, const std::int64_t* sent, void* out,
                                           const std::int64_t* received) {
  auto& all = everyone();
  const detail::meeting_subject subject{
      static_cast<std::uint32_t>(2 + bytes_per_elem), nullptr, nullptr, nullptr,
      [](const detail::mesh_shape*, dtype, const void*) { return std::string("an exchange of blocks"); }};
  const auto parity = meet(all, subject, in, const_cast<std::int64_t*>(sent));  // the other devices only read the counts
  const auto counts_of = [&](int k) { return static_cast<const std::int64_t*>(all.lane(k, parity).out); };
  for (int k = 0; k < device_count(); ++k)
    if (const auto comes = counts_of(k)[rank_]; comes != received[k])
      stop_all(subject, detail::different_blocks(k, comes, rank_, received[k], static_cast<std::size_t>(bytes_per_elem)));
  auto* to = static_cast<std::byte*>(out);
  for (int k = 0; k < device_count(); ++k) {
    std::int64_t before = 0;
    for (int d = 0; d < rank_; ++d) before += counts_of(k)[d];
    to = std::copy_n(static_cast<const std::byte*>(all.lane(k, parity).in) + before * bytes_per_elem,
                     received[k] * bytes_per_elem, to);
  }
  meet(all, subject, nullptr, nullptr);
}
GSPMD_COMPILED_ONCE(void threads_communicator::exchange_blocks<detail::once>(std::int64_t, const void*, const std::int64_t*,
                                                                             void*, const std::int64_t*));

template <class Once>
threads_communicator::membership& threads_communicator::everyone() {
  auto& mine = memberships_->everyone;
  if (!mine) {
    std::vector<int> all(static_cast<std::size_t>(device_count()));
    for (int d = 0; d < device_count(); ++d) all[static_cast<std::size_t>(d)] = d;
    mine.emplace(membership{{}, {}, &session_.group_of(all), rank_});
  }
  return *mine;
}
GSPMD_COMPILED_ONCE(threads_communicator::membership& threads_communicator::everyone<detail::once>());

template <class Once>
threads_communicator::membership& threads_communicator::membership_of(const detail::mesh_shape& mesh, detail::axis_mask axes) {
  for (auto& known : memberships_->of_axes)
    if (known.key->names(mesh, axes)) return known;
  const auto me = mesh.coordinates_of(rank_);
  return memberships_->of_axes.emplace_back(membership{detail::group_key(mesh, axes), me,
                                                       &session_.group_of(detail::members_of(mesh, axes, me)),
                                                       detail::group_index(mesh, axes, me)});
}
GSPMD_COMPILED_ONCE(threads_communicator::membership& threads_communicator::membership_of<detail::once>(const detail::mesh_shape&,
                                                                                                        detail::axis_mask));

template <class Once>
unsigned threads_communicator::meet(membership& mine, const detail::meeting_subject& subject, const void* in, void* out) {
  finish_elements(mine);
  auto& lane = mine.slot(mine.self).next_lane();
  lane.in = in;
  lane.out = out;
  return arrive(mine, subject);
}
GSPMD_COMPILED_ONCE(unsigned threads_communicator::meet<detail::once>(threads_communicator::membership&,
                                                                      const detail::meeting_subject&, const void*, void*));

template <class Once>
bool threads_communicator::arrive_with_mail(membership& mine, const detail::meeting_subject& subject, const void* in, void* out,
                                            std::int64_t bytes) {
  finish_elements(mine);
  auto& lane = mine.slot(mine.self).next_lane();
  const bool fits = bytes <= static_cast<std::int64_t>(detail::mail_bytes);
  if (fits) {
    if (bytes > 0) std::memcpy(lane.mail, in, static_cast<std::size_t>(bytes));
  } else {
    lane.in = in;
    lane.out = out;
  }
  arrive_alone(mine, subject);
  return fits;
}
GSPMD_COMPILED_ONCE(bool threads_communicator::arrive_with_mail<detail::once>(threads_communicator::membership&,
                                                                              const detail::meeting_subject&, const void*, void*,
                                                                              std::int64_t));

template <class Once>
void threads_communicator::move_elements(const detail::mesh_shape& mesh, const detail::movement& m, dtype type, const void* in,
                                         void* out) {
  auto& mine = membership_of(mesh, m.axes);
  const auto bytes_per_elem = detail::bytes_of(type);
  mine.copies.make_room(mesh, m, bytes_per_elem);
  if (mine.size() == 1)
    return detail::kept_copies::move(
        mine.copies.find(mesh, m, mine.me, bytes_per_elem), mesh, m, mine.me, [&](std::int64_t) { return in; }, out,
        bytes_per_elem);
  const auto subject = detail::subject_of(mesh, m, type);
  const auto bytes = detail::local_elements(mesh, m.from_global, m.from) * bytes_per_elem;
  const bool is_mail = arrive_with_mail(mine, subject, in, out, bytes);
  const auto* const known = mine.copies.find(mesh, m, mine.me, bytes_per_elem);
  const auto parity = wait(mine, subject);
  detail::kept_copies::move(
      known, mesh, m, mine.me, [&](std::int64_t j) { return mine.input(j, parity, in, is_mail); }, out, bytes_per_elem);
  if (!is_mail) arrive(mine, subject);
}
GSPMD_COMPILED_ONCE(void threads_communicator::move_elements<detail::once>(const detail::mesh_shape&, const detail::movement&,
                                                                           dtype, const void*, void*));

template <class Once>
void threads_communicator::start_elements(const list_under_way& made) {
  auto& mine = membership_of(*made.mesh, made.reductions.empty() ? made.movements[0].axes : made.reductions[0].axes);
  finish_elements(mine);
  for (const auto& m : made.movements) mine.copies.make_room(*made.mesh, m, detail::bytes_of(made.subject.type));
  auto& u = mine.under_way.emplace(made);  // last, so that the list is waited for only if the device arrives
  auto& lane = mine.slot(mine.self).next_lane();
  lane.in = u.in;
  lane.out = u.out;
  arrive_alone(mine, u.subject);
}
GSPMD_COMPILED_ONCE(void threads_communicator::start_elements<detail::once>(const threads_communicator::list_under_way&));

template <class Once>
void threads_communicator::finish_list(membership& mine) {
  const list_under_way& u = *mine.under_way;
  u.take(u, mine, wait(mine, u.subject));
  arrive(mine, u.subject);
  mine.under_way.reset();
}
GSPMD_COMPILED_ONCE(void threads_communicator::finish_list<detail::once>(threads_communicator::membership&));

template <class Once>
void threads_communicator::reduce_elements(const detail::mesh_shape& mesh, const detail::reduction& r, dtype type,
                                           const detail::row_combiner& op, const void* in, void* out) {
  auto& mine = membership_of(mesh, r.axes);
  if (mine.size() == 1) return detail::reduce_alone(mesh, r, mine.me, in, out, op.elem_bytes);
  const auto subject = detail::subject_of(mesh, r, type);
  const auto elems = detail::elements(detail::local_extents(mesh, r.global, r.from));
  const bool scatters = classify(mesh, r) == detail::collective_kind::reduce_scatter;
  if (scatters) mine.boxes.make_room(r);
  const bool is_mail = arrive_with_mail(mine, subject, in, out, elems * op.elem_bytes);
  const auto* const box = scatters ? &mine.boxes.find(mesh, r, mine.me) : nullptr;
  const auto parity = wait(mine, subject);
  const auto theirs = [&](std::int64_t j) { return mine.input(j, parity, in, is_mail); };
  if (scatters) detail::reduce_scatter_from_peers(op, *box, mine.size(), theirs, out);
  else if (is_mail) detail::reduce_row(op, out, mine.size(), theirs, 0, elems, false);
  else
    detail::all_reduce_from_peers(op, elems, mine.size(), mine.self, theirs,
                                  [&](std::int64_t j) { return j == mine.self ? out : mine.lane(j, parity).out; });
  if (!is_mail) arrive(mine, subject);
}
GSPMD_COMPILED_ONCE(void threads_communicator::reduce_elements<detail::once>(const detail::mesh_shape&, const detail::reduction&,
                                                                             dtype, const detail::row_combiner&, const void*,
                                                                             void*));

namespace detail {

template <class Once>
[[gnu::noinline, gnu::cold]] void launch_threads(int devices, void* f, void (*call)(void* f, threads_communicator& group)) {
  thread_session session(devices);
  std::optional<single_threaded_blas> one_thread_each;
  if (devices > 1) one_thread_each.emplace();
  const auto run_device = [&](int rank) {
    threads_communicator group(session, rank, devices);
    try {
      call(f, group);
    } catch (const stopped_by_peer&) {
    } catch (const error& failure) {
      session.fail(std::make_exception_ptr(failure.rank() < 0 ? failure.with_rank(rank) : failure));
    } catch (...) {
      session.fail(std::current_exception());
    }
    session.end(rank);
    group.stop();
  };
  std::vector<std::thread> others;
  int started = 1;
  try {
    others.reserve(static_cast<std::size_t>(devices));
    for (; started < devices; ++started) others.emplace_back(run_device, started);
  } catch (const std::exception& failure) {
    session.stop(devices - started);
    session.fail(std::make_exception_ptr(error(std::string("cannot start a thread: ") + failure.what(), started)));
  }
  run_device(0);
  for (auto& other : others) other.join();
  session.rethrow_failure();
}
GSPMD_COMPILED_ONCE(void launch_threads<once>(int, void*, void (*)(void*, threads_communicator&)));

}  // namespace detail
}  // namespace gspmd
