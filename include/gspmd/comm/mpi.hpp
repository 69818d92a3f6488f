// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/exec/mpi_call.hpp"  // first: it says how to include mpi.h

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/exec/box.hpp"
#include "gspmd/detail/exec/collective.hpp"
#include "gspmd/detail/exec/group_key.hpp"
#include "gspmd/detail/exec/mpi_plan.hpp"
#include "gspmd/detail/exec/node_window.hpp"
#include "gspmd/detail/exec/shared_memory.hpp"
#include "gspmd/error.hpp"

namespace gspmd {

struct mpi_options {
  /// Reduce through memory that the processes share, in groups that lie on one node.
  bool shared_memory = true;
  /// The most elements given to one MPI call.
  std::int64_t largest_count = INT_MAX;
};

/// One device per MPI process; the device's id is its rank.
///
/// Reductions in groups that lie on one node go through shared memory, and combine in the order of the members as those of
/// the other backends do; across nodes MPI chooses the order, and what the maximum of a NaN is.
/// Works on a duplicate of the communicator it is given, which reports errors instead of ending the program; they arrive
/// as gspmd::error with MPI's text. MPI_THREAD_SINGLE is enough. One communicator per group of axes is made when that
/// group first communicates, and kept; nothing is allocated after the first collective of a kind and size.
class mpi_communicator {
 public:
  /// Collective over `comm`, after MPI_Init.
  explicit mpi_communicator(MPI_Comm comm, mpi_options options = {})
      : largest_count_(options.largest_count), shared_memory_(options.shared_memory) {
    int is_initialized = 0, is_finalized = 0;
    MPI_Initialized(&is_initialized);
    MPI_Finalized(&is_finalized);
    if (is_initialized == 0 || is_finalized != 0)
      throw error("the mpi backend needs MPI to be running: call MPI_Init before and MPI_Finalize after");
    check(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &count_), "MPI_Comm_size");
  }
  mpi_communicator(const mpi_communicator&) = delete;
  mpi_communicator& operator=(const mpi_communicator&) = delete;
  /// Collective, if it is to be before MPI_Finalize; after it nothing is left to free.
  ~mpi_communicator() {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized != 0) {
      for (const auto& known : memberships_) static_cast<void>(known->window.release());  // cannot be freed any more
      return;
    }
    for (const auto& known : memberships_) {
      known->window.reset();
      if (known->comm != MPI_COMM_NULL) MPI_Comm_free(&known->comm);
    }
    MPI_Comm_free(&comm_);
  }

  [[nodiscard]] int device_count() const { return count_; }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int) const { return rank_; }
  void barrier() { check(MPI_Barrier(comm_), "MPI_Barrier"); }

  template <class T>
  void move(const detail::mesh_shape& mesh, const detail::movement& m, const T* const* in, T* const* out) {
    const auto& mine = membership_of(mesh, m.axes);
    if (mine.size() == 1)
      return detail::move_from_peers<T>(mesh, m, mine.me, [&](std::int64_t) { return in[0]; }, out[0]);
    if (gathers_whole_shards(mesh, m)) return gather(mine, mesh, m, in[0], out[0]);
    if (is_contiguous_exchange(mesh, m)) return exchange(mine, mesh, m, in[0], out[0]);
    if (classify(mesh, m) == detail::collective_kind::collective_permute) return permute(mine, mesh, m, in[0], out[0]);
    move_boxes(mine, mesh, m, in[0], out[0]);
  }

  template <class T>
  void reduce(const detail::mesh_shape& mesh, const detail::reduction& r, const T* const* in, T* const* out) {
    auto& mine = membership_of(mesh, r.axes);
    if (mine.size() == 1) return detail::reduce_alone<T>(mesh, r, mine.me, in[0], out[0]);
    if (shared_memory_ && !mine.asked_for_window) {
      mine.window = detail::node_window::make(mine.comm, rank_);
      mine.asked_for_window = true;
    }
    if (classify(mesh, r) == detail::collective_kind::all_reduce)
      all_reduce(mine, elements(local_extents(mesh, r.global, r.from)), r.kind, in[0], out[0]);
    else
      reduce_scatter(mine, mesh, r, in[0], out[0]);
  }

 private:
  /// The place of this rank in one of its groups, with the group's communicator: ranks there are member numbers.
  struct membership {
    detail::group_key key;
    detail::coordinates me;
    std::vector<int> devices;
    std::int64_t self = 0;
    MPI_Comm comm = MPI_COMM_NULL;
    std::unique_ptr<detail::node_window> window = nullptr;  // where the group lies on one node; made by its first reduction
    bool asked_for_window = false;
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(devices.size()); }
  };

  membership& membership_of(const detail::mesh_shape& mesh, detail::axis_mask axes) {
    for (const auto& known : memberships_)
      if (known->key.names(mesh, axes)) return *known;
    const auto me = mesh.coordinates_of(rank_);
    memberships_.push_back(std::make_unique<membership>(membership{detail::group_key(mesh, axes), me,
                                                                   detail::members_of(mesh, axes, me),
                                                                   detail::group_index(mesh, axes, me), MPI_COMM_NULL}));
    auto& made = *memberships_.back();
    if (made.size() > 1) {
      // only the members take part, so that groups may go different ways
      MPI_Group all = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
      check(MPI_Comm_group(comm_, &all), "MPI_Comm_group");
      check(MPI_Group_incl(all, static_cast<int>(made.size()), made.devices.data(), &group), "MPI_Group_incl");
      check(MPI_Comm_create_group(comm_, group, 0, &made.comm), "MPI_Comm_create_group");
      MPI_Comm_set_errhandler(made.comm, MPI_ERRORS_RETURN);
      MPI_Group_free(&group);
      MPI_Group_free(&all);
    }
    return made;
  }

  // ---- movements ----

  template <class T>
  void gather(const membership& mine, const detail::mesh_shape& mesh, const detail::movement& m, const T* in, T* out) {
    const auto elems = elements(local_extents(mesh, m.global, m.from));
    if (elems == 0) return;
    const bool in_place = is_stacked(mesh, m.global, m.to, m.from, m.axes);
    T* const all = in_place ? out : send_scratch_.template at_least<T>(elems * mine.size());
    if (elems <= largest_count_) {
      const int count = static_cast<int>(elems);
      check(MPI_Allgather(in, count, detail::mpi_type<T>(), all, count, detail::mpi_type<T>(), mine.comm), "MPI_Allgather");
    } else {
      for (std::int64_t j = 0; j < mine.size(); ++j) {
        receive(mine, j, all + j * elems, elems);
        send(mine, j, in, elems);
      }
      finish();
    }
    if (in_place) return;
    detail::move_from_peers<T>(mesh, m, mine.me, [&](std::int64_t j) { return all + j * elems; }, out);
  }

  template <class T>
  void exchange(const membership& mine, const detail::mesh_shape& mesh, const detail::movement& m, const T* in, T* out) {
    const auto elems = elements(local_extents(mesh, m.global, m.from)) / mine.size();
    if (elems <= largest_count_) {
      const int count = static_cast<int>(elems);
      check(MPI_Alltoall(in, count, detail::mpi_type<T>(), out, count, detail::mpi_type<T>(), mine.comm), "MPI_Alltoall");
      return;
    }
    for (std::int64_t j = 0; j < mine.size(); ++j) {
      receive(mine, j, out + j * elems, elems);
      send(mine, j, in + j * elems, elems);
    }
    finish();
  }

  /// Whole shards go to other devices, one to each; one device may have to serve several.
  template <class T>
  void permute(const membership& mine, const detail::mesh_shape& mesh, const detail::movement& m, const T* in, T* out) {
    const auto elems = elements(local_extents(mesh, m.global, m.from));
    const auto held = ranges_of(mesh, m.global, m.from, mine.me);
    const auto wanted = ranges_of(mesh, m.global, m.to, mine.me);
    for (std::int64_t j = 0; j < mine.size(); ++j) {
      const auto peer = group_member(mesh, m.axes, mine.me, j);
      const bool is_source = intersect(ranges_of(mesh, m.global, m.from, peer), wanted).any();
      const bool is_target = intersect(held, ranges_of(mesh, m.global, m.to, peer)).any();
      if (j == mine.self) {
        if (is_source) detail::copy_row(out, in, elems);
        continue;
      }
      if (is_source) receive(mine, j, out, elems);
      if (is_target) send(mine, j, in, elems);
    }
    finish();
  }

  /// The general case: a box for every pair. A box that is contiguous in the user's buffer is not packed, the own one is
  /// copied straight away.
  template <class T>
  void move_boxes(const membership& mine, const detail::mesh_shape& mesh, const detail::movement& m, const T* in, T* out) {
    const auto source = detail::layout_of(mesh, m.global, m.from, mine.me);
    const auto target = detail::layout_of(mesh, m.global, m.to, mine.me);
    T* const packed_in = send_scratch_.template at_least<T>(source.elems() * sends_at_most(mesh, m));
    T* const packed_out = receive_scratch_.template at_least<T>(target.elems());

    const auto peer_at = [&](std::int64_t j) { return group_member(mesh, m.axes, mine.me, j); };
    const auto box_from = [&](std::int64_t j) {
      return intersect(ranges_of(mesh, m.global, m.from, peer_at(j)), target.held);
    };
    std::int64_t received = 0, sent = 0;
    for (std::int64_t j = 0; j < mine.size(); ++j) {
      if (j == mine.self) continue;
      const auto box = box_from(j);
      if (!box.any()) continue;
      const auto placed = place(box, detail::packed(box), target);
      const bool direct = placed.box.row() == box.elems();
      receive(mine, j, direct ? out + placed.out_offset : packed_out + received, box.elems());
      received += box.elems();
    }
    for (std::int64_t k = 1; k < mine.size(); ++k) {
      const auto j = (mine.self + k) % mine.size();  // not all to the same one at once
      const auto box = intersect(source.held, ranges_of(mesh, m.global, m.to, peer_at(j)));
      if (!box.any()) continue;
      const auto placed = place(box, source, detail::packed(box));
      if (placed.box.row() == box.elems()) {
        send(mine, j, in + placed.in_offset, box.elems());
      } else {
        copy_box(packed_in + sent, in, placed);
        send(mine, j, packed_in + sent, box.elems());
        sent += box.elems();
      }
    }
    const auto own = intersect(source.held, target.held);
    if (own.any()) copy_box(out, in, place(own, source, target));
    finish();
    received = 0;
    for (std::int64_t j = 0; j < mine.size(); ++j) {
      if (j == mine.self) continue;
      const auto box = box_from(j);
      if (!box.any()) continue;
      const auto placed = place(box, detail::packed(box), target);
      if (placed.box.row() != box.elems()) copy_box(out, packed_out + received, placed);
      received += box.elems();
    }
  }

  /// To how many members of the group the same element may go: to all that differ only in axes that `to` does not use.
  static std::int64_t sends_at_most(const detail::mesh_shape& mesh, const detail::movement& m) {
    return mesh.size_of(m.axes & ~m.to.split_axes());
  }

  // ---- reductions ----

  template <class T>
  void all_reduce(const membership& mine, std::int64_t elems, monoid kind, const T* in, T* out) {
    if (mine.window) return mine.window->all_reduce(kind, elems, in, out);
    for (std::int64_t begin = 0; begin < elems; begin += largest_count_) {
      const int count = static_cast<int>(elems - begin < largest_count_ ? elems - begin : largest_count_);
      check(MPI_Allreduce(in == out ? MPI_IN_PLACE : static_cast<const void*>(in + begin), out + begin, count,
                          detail::mpi_type<T>(), detail::mpi_op<T>(kind), mine.comm),
            "MPI_Allreduce");
    }
  }

  template <class T>
  void reduce_scatter(const membership& mine, const detail::mesh_shape& mesh, const detail::reduction& r, const T* in, T* out) {
    const auto type = detail::mpi_type<T>();
    const auto op = detail::mpi_op<T>(r.kind);
    const auto target = detail::layout_of(mesh, r.global, r.to, mine.me);
    const auto result_elems = target.elems();
    const auto n = mine.size();
    offsets_.assign(static_cast<std::size_t>(n) + 1, 0);
    if (is_stacked(mesh, r.global, r.from, r.to, r.axes)) {
      if (mine.window) {
        for (std::int64_t j = 0; j <= n; ++j) offsets_[static_cast<std::size_t>(j)] = j * result_elems;
        return mine.window->reduce_scatter(r.kind, offsets_.data(), in, out);
      }
      if (result_elems <= largest_count_) {
        check(MPI_Reduce_scatter_block(in, out, static_cast<int>(result_elems), type, op, mine.comm),
              "MPI_Reduce_scatter_block");
        return;
      }
    }
    // Each member's box is packed, then the blocks, of any sizes, are reduced and the own one is put in its place.
    const auto source = detail::layout_of(mesh, r.global, r.from, mine.me);
    T* const packed_in = send_scratch_.template at_least<T>(result_elems * n);
    T* const packed_out = receive_scratch_.template at_least<T>(result_elems);
    counts_.assign(static_cast<std::size_t>(n), 0);
    for (std::int64_t j = 0; j < n; ++j) {
      const auto box = ranges_of(mesh, r.global, r.to, group_member(mesh, r.axes, mine.me, j));
      const auto elems = box.elems();
      const auto at = static_cast<std::size_t>(j);
      if (elems > 0) copy_box(packed_in + offsets_[at], in, place(box, source, detail::packed(box)));
      offsets_[at + 1] = offsets_[at] + elems;
      if (elems <= largest_count_) counts_[at] = static_cast<int>(elems);
    }
    if (mine.window)
      mine.window->reduce_scatter(r.kind, offsets_.data(), packed_in, packed_out);
    else if (result_elems <= largest_count_)
      check(MPI_Reduce_scatter(packed_in, packed_out, counts_.data(), type, op, mine.comm), "MPI_Reduce_scatter");
    else
      for (std::int64_t j = 0; j < n; ++j) {
        const auto first = offsets_[static_cast<std::size_t>(j)];
        const auto elems = offsets_[static_cast<std::size_t>(j) + 1] - first;
        for (std::int64_t begin = 0; begin < elems; begin += largest_count_) {
          const int count = static_cast<int>(elems - begin < largest_count_ ? elems - begin : largest_count_);
          check(MPI_Reduce(packed_in + first + begin, packed_out + begin, count, type, op, static_cast<int>(j), mine.comm),
                "MPI_Reduce");
        }
      }
    if (target.held.any()) copy_box(out, packed_out, place(target.held, detail::packed(target.held), target));
  }

  // ---- messages ----

  template <class T>
  void send(const membership& mine, std::int64_t to, const T* data, std::int64_t elems) {
    for (std::int64_t begin = 0; begin < elems; begin += largest_count_) {
      const int count = static_cast<int>(elems - begin < largest_count_ ? elems - begin : largest_count_);
      requests_.push_back(MPI_REQUEST_NULL);
      check(MPI_Isend(data + begin, count, detail::mpi_type<T>(), static_cast<int>(to), 0, mine.comm, &requests_.back()),
            "MPI_Isend");
    }
  }
  template <class T>
  void receive(const membership& mine, std::int64_t from, T* data, std::int64_t elems) {
    for (std::int64_t begin = 0; begin < elems; begin += largest_count_) {
      const int count = static_cast<int>(elems - begin < largest_count_ ? elems - begin : largest_count_);
      requests_.push_back(MPI_REQUEST_NULL);
      check(MPI_Irecv(data + begin, count, detail::mpi_type<T>(), static_cast<int>(from), 0, mine.comm, &requests_.back()),
            "MPI_Irecv");
    }
  }
  void finish() {
    check(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
    requests_.clear();
  }

  void check(int code, const char* call) const { detail::check_mpi(code, call, rank_); }

  /// Memory that only grows.
  class scratch {
   public:
    template <class T>
    T* at_least(std::int64_t elems) {
      const auto bytes = static_cast<std::size_t>(elems) * sizeof(T);
      if (bytes > bytes_) {
        memory_.reset();
        memory_.reset(new std::byte[bytes]);
        bytes_ = bytes;
      }
      return reinterpret_cast<T*>(memory_.get());
    }

   private:
    std::unique_ptr<std::byte[]> memory_;
    std::size_t bytes_ = 0;
  };

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::int64_t largest_count_;
  bool shared_memory_;
  std::vector<std::unique_ptr<membership>> memberships_;
  std::vector<MPI_Request> requests_;
  std::vector<int> counts_;
  std::vector<std::int64_t> offsets_;
  scratch send_scratch_, receive_scratch_;
  int rank_ = -1;
  int count_ = 0;
};

/// Backend: one device per process of `comm`. MPI_Init and MPI_Finalize are the caller's.
struct mpi {
  MPI_Comm comm = MPI_COMM_WORLD;
  mpi_options options = {};
};

/// Calls `f(comm)` once on every process; collective over `backend.comm`. Throws gspmd::error, alike on all processes,
/// unless there are `devices` of them. What `f` throws on one process cannot reach those that wait for it: its text goes to
/// stderr and MPI_Abort ends them all. Alone, a process just throws it.
template <class F>
void launch(mpi backend, int devices, F&& f) {
  mpi_communicator comm(backend.comm, backend.options);
  require_devices(comm, devices);
  if (devices == 1) return static_cast<void>(f(comm));
  const auto give_up = [&](const error& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    std::fflush(stderr);
    MPI_Abort(backend.comm, 1);
  };
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
