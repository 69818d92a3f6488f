// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/comm/threads.hpp"

namespace gspmd {

template <class Once>
threads_communicator::membership& threads_communicator::everyone() {
  if (!everyone_) {
    std::vector<int> all(static_cast<std::size_t>(device_count()));
    for (int d = 0; d < device_count(); ++d) all[static_cast<std::size_t>(d)] = d;
    everyone_.emplace(membership{{}, {}, &session_.group_of(all), rank_});
  }
  return *everyone_;
}
GSPMD_COMPILED_ONCE(threads_communicator::membership& threads_communicator::everyone<detail::once>());

template <class Once>
threads_communicator::membership& threads_communicator::membership_of(const detail::mesh_shape& mesh, detail::axis_mask axes) {
  for (auto& known : memberships_)
    if (known.key->names(mesh, axes)) return known;
  const auto me = mesh.coordinates_of(rank_);
  return memberships_.emplace_back(membership{detail::group_key(mesh, axes), me,
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
    threads_communicator group(session, rank);
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
