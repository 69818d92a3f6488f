// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/exec/mpi_call.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "gspmd/detail/exec/box.hpp"
#include "gspmd/detail/exec/collective.hpp"
#include "gspmd/detail/exec/group_key.hpp"
#include "gspmd/detail/exec/message_plan.hpp"
#include "gspmd/detail/exec/mpi_node_memory.hpp"
#include "gspmd/detail/exec/mpi_node_window.hpp"
#include "gspmd/detail/exec/shared_memory.hpp"

namespace gspmd::detail {

/// Memory that only grows.
class growing_buffer {
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

/// What all groups of a communicator use in turn.
struct mpi_workspace {
  std::int64_t largest_count;  // the most elements given to one MPI call
  bool shared_memory;
  int rank;
  std::vector<std::unique_ptr<node_memory>> memories;
  growing_buffer send_scratch, receive_scratch;
  std::vector<MPI_Request> requests;
  std::vector<int> counts;
  std::vector<std::int64_t> offsets;
};

/// The group of this process over some axes of a mesh, and its collectives. Ranks in its communicator are member numbers.
///
/// A collective goes, in this order of preference,
///  - straight between the members' buffers, where all of them lie in node_memory;
///  - a reduction through node_window, where all members share a node;
///  - by the one MPI call that does just this, straight between the user's buffers (message_plan.hpp);
///  - by packing, messages and unpacking.
class mpi_group {
 public:
  /// Collective over the members, so that groups may go different ways.
  mpi_group(MPI_Comm parent, const mesh_shape& mesh, axis_mask axes, mpi_workspace& work)
      : key_(mesh, axes),
        me_(mesh.coordinates_of(work.rank)),
        devices_(members_of(mesh, axes, me_)),
        self_(group_index(mesh, axes, me_)),
        work_(work) {
    if (size() == 1) return;
    MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    check(MPI_Comm_group(parent, &all), "MPI_Comm_group");
    check(MPI_Group_incl(all, static_cast<int>(size()), devices_.data(), &members), "MPI_Group_incl");
    check(MPI_Comm_create_group(parent, members, 0, &comm_), "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Group_free(&members);
    MPI_Group_free(&all);
  }
  mpi_group(const mpi_group&) = delete;
  mpi_group& operator=(const mpi_group&) = delete;
  /// Collective over the members, before MPI_Finalize.
  ~mpi_group() {
    window_.reset();
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }

  [[nodiscard]] bool is_over(const mesh_shape& mesh, axis_mask axes) const { return key_.names(mesh, axes); }

  template <class T>
  void move(const mesh_shape& mesh, const movement& m, const T* in, T* out) {
    if (size() == 1)
      return move_from_peers(
          mesh, m, me_, [&](std::int64_t) { return in; }, out, sizeof(T));
    if (!work_.memories.empty() && window() != nullptr && find_peers(in, out, false)) {
      move_from_peers(mesh, m, me_, peers{peer_in_}, out, sizeof(T));
      window_->meet();
      return;
    }
    if (gathers_whole_shards(mesh, m)) return gather(mesh, m, in, out);
    if (is_contiguous_exchange(mesh, m)) return exchange(mesh, m, in, out);
    if (classify(mesh, m) == collective_kind::collective_permute) return permute(mesh, m, in, out);
    move_boxes(mesh, m, in, out);
  }

  template <class T>
  void reduce(const mesh_shape& mesh, const reduction& r, const T* in, T* out) {
    if (size() == 1) return reduce_alone<T>(mesh, r, me_, in, out);
    const bool scatters = classify(mesh, r) == collective_kind::reduce_scatter;
    const auto elems = elements(local_extents(mesh, r.global, r.from));
    const bool is_small = node_window::fits_mail(elems * static_cast<std::int64_t>(sizeof(T)));
    if (window() != nullptr && !work_.memories.empty() && !is_small && find_peers(in, out, !scatters)) {
      if (scatters) reduce_scatter_from_peers<T>(mesh, r, me_, peers{peer_in_}, out);
      else all_reduce_from_peers<T>(r.kind, elems, size(), self_, peers{peer_in_}, peers{peer_out_});
      window_->meet();
      return;
    }
    if (scatters) reduce_scatter(mesh, r, in, out);
    else all_reduce(elems, r.kind, in, out);
  }

  void shift(const mesh_shape& mesh, const ring& r, const ring_buffers& ahead, const ring_buffers* behind) {
    const auto next = r.member_ahead(mesh, me_, 1), last = r.member_ahead(mesh, me_, -1);
    const auto bytes = static_cast<std::size_t>(r.bytes);
    const void* const sent_ahead = behind != nullptr ? behind->from(0) : nullptr;
    if (!work_.memories.empty() && window() != nullptr && find_peers(ahead.from(0), sent_ahead, behind != nullptr)) {
      std::memcpy(ahead.to(0), peer_in_[static_cast<std::size_t>(next)], bytes);
      if (behind != nullptr) std::memcpy(behind->to(0), peer_out_[static_cast<std::size_t>(last)], bytes);
      window_->meet();
      return;
    }
    receive(next, static_cast<std::byte*>(ahead.to(0)), r.bytes);
    send(last, static_cast<const std::byte*>(ahead.from(0)), r.bytes);
    if (behind != nullptr) {
      receive(last, static_cast<std::byte*>(behind->to(0)), r.bytes);
      send(next, static_cast<const std::byte*>(sent_ahead), r.bytes);
    }
    finish();
  }

 private:
  /// From the number of a member to its buffer.
  struct peers {
    const std::vector<void*>& buffers;
    void* operator()(std::int64_t j) const { return buffers[static_cast<std::size_t>(j)]; }
  };

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(devices_.size()); }
  void check(int code, const char* call) const { check_mpi(code, call, work_.rank); }

  // ---- shared memory ----

  /// Where the members meet, if they share a node. The first call is collective over the group.
  node_window* window() {
    if (work_.shared_memory && !asked_for_window_) {
      window_ = node_window::make(comm_, work_.rank);
      asked_for_window_ = true;
    }
    return window_.get();
  }

  struct addresses {
    node_address in, out;
  };
  /// Meets the members and finds their buffers in this process; false, on all alike, if not all lie in node_memory.
  bool find_peers(const void* in, const void* out, bool needs_out) {
    const auto& memories = work_.memories;
    const auto parity = window_->meet_with(addresses{address_of(memories, in), needs_out ? address_of(memories, out) : 0});
    peer_in_.resize(devices_.size());
    peer_out_.resize(devices_.size());
    bool found = true;
    for (std::size_t j = 0; j < devices_.size(); ++j) {
      const auto note = window_->template note_of<addresses>(static_cast<std::int64_t>(j), parity);
      peer_in_[j] = find(memories, devices_[j], note.in);
      peer_out_[j] = find(memories, devices_[j], note.out);
      found = found && peer_in_[j] != nullptr && (!needs_out || peer_out_[j] != nullptr);
    }
    return found;
  }

  // ---- movements ----

  template <class T>
  void gather(const mesh_shape& mesh, const movement& m, const T* in, T* out) {
    const auto elems = elements(local_extents(mesh, m.global, m.from));
    if (elems == 0) return;
    const auto packed = packing_of(mesh, m).send_elems;
    const bool in_place = packed == 0;
    T* const all = in_place ? out : work_.send_scratch.template at_least<T>(packed);
    if (elems <= work_.largest_count) {
      const int count = static_cast<int>(elems);
      check(MPI_Allgather(in, count, mpi_type<T>(), all, count, mpi_type<T>(), comm_), "MPI_Allgather");
    } else {
      for (std::int64_t j = 0; j < size(); ++j) {
        receive(j, all + j * elems, elems);
        send(j, in, elems);
      }
      finish();
    }
    if (in_place) return;
    move_from_peers(
        mesh, m, me_, [&](std::int64_t j) { return all + j * elems; }, out, sizeof(T));
  }

  template <class T>
  void exchange(const mesh_shape& mesh, const movement& m, const T* in, T* out) {
    const auto elems = elements(local_extents(mesh, m.global, m.from)) / size();
    if (elems <= work_.largest_count) {
      const int count = static_cast<int>(elems);
      check(MPI_Alltoall(in, count, mpi_type<T>(), out, count, mpi_type<T>(), comm_), "MPI_Alltoall");
      return;
    }
    for (std::int64_t j = 0; j < size(); ++j) {
      receive(j, out + j * elems, elems);
      send(j, in + j * elems, elems);
    }
    finish();
  }

  /// Whole shards go to other devices, one to each; one device may have to serve several.
  template <class T>
  void permute(const mesh_shape& mesh, const movement& m, const T* in, T* out) {
    const auto elems = elements(local_extents(mesh, m.global, m.from));
    const auto held = ranges_of(mesh, m.global, m.from, me_);
    const auto wanted = ranges_of(mesh, m.global, m.to, me_);
    for (std::int64_t j = 0; j < size(); ++j) {
      const auto peer = group_member(mesh, m.axes, me_, j);
      const bool is_source = intersect(ranges_of(mesh, m.global, m.from, peer), wanted).any();
      const bool is_target = intersect(held, ranges_of(mesh, m.global, m.to, peer)).any();
      if (j == self_) {
        if (is_source) copy_row(out, in, elems);
        continue;
      }
      if (is_source) receive(j, out, elems);
      if (is_target) send(j, in, elems);
    }
    finish();
  }

  /// The general case: a box for every pair. A box that is contiguous in the user's buffer is not packed, the own one is
  /// copied straight away.
  template <class T>
  void move_boxes(const mesh_shape& mesh, const movement& m, const T* in, T* out) {
    const auto source = layout_of(mesh, m.global, m.from, me_);
    const auto target = layout_of(mesh, m.global, m.to, me_);
    const auto memory = packing_of(mesh, m);
    T* const packed_in = work_.send_scratch.template at_least<T>(memory.send_elems);
    T* const packed_out = work_.receive_scratch.template at_least<T>(memory.receive_elems);

    const auto peer_at = [&](std::int64_t j) { return group_member(mesh, m.axes, me_, j); };
    const auto box_from = [&](std::int64_t j) { return intersect(ranges_of(mesh, m.global, m.from, peer_at(j)), target.held); };
    std::int64_t received = 0, sent = 0;
    for (std::int64_t j = 0; j < size(); ++j) {
      if (j == self_) continue;
      const auto box = box_from(j);
      if (!box.any()) continue;
      const auto placed = place(box, packed(box), target);
      const bool direct = placed.box.row() == box.elems();
      receive(j, direct ? out + placed.out_offset : packed_out + received, box.elems());
      received += box.elems();
    }
    for (std::int64_t k = 1; k < size(); ++k) {
      const auto j = (self_ + k) % size();  // not all to the same one at once
      const auto box = intersect(source.held, ranges_of(mesh, m.global, m.to, peer_at(j)));
      if (!box.any()) continue;
      const auto placed = place(box, source, packed(box));
      if (placed.box.row() == box.elems()) {
        send(j, in + placed.in_offset, box.elems());
      } else {
        copy_box(packed_in + sent, in, placed);
        send(j, packed_in + sent, box.elems());
        sent += box.elems();
      }
    }
    const auto own = intersect(source.held, target.held);
    if (own.any()) copy_box(out, in, place(own, source, target));
    finish();
    received = 0;
    for (std::int64_t j = 0; j < size(); ++j) {
      if (j == self_) continue;
      const auto box = box_from(j);
      if (!box.any()) continue;
      const auto placed = place(box, packed(box), target);
      if (placed.box.row() != box.elems()) copy_box(out, packed_out + received, placed);
      received += box.elems();
    }
  }

  // ---- reductions ----

  template <class T>
  void all_reduce(std::int64_t elems, monoid kind, const T* in, T* out) {
    if (elems == 0) return;  // on all members alike
    if (window_) return window_->all_reduce(kind, elems, in, out);
    for (std::int64_t begin = 0; begin < elems; begin += work_.largest_count) {
      const int count = static_cast<int>(elems - begin < work_.largest_count ? elems - begin : work_.largest_count);
      check(MPI_Allreduce(in == out ? MPI_IN_PLACE : static_cast<const void*>(in + begin), out + begin, count, mpi_type<T>(),
                          mpi_op<T>(kind), comm_),
            "MPI_Allreduce");
    }
  }

  template <class T>
  void reduce_scatter(const mesh_shape& mesh, const reduction& r, const T* in, T* out) {
    const auto type = mpi_type<T>();
    const auto op = mpi_op<T>(r.kind);
    const auto target = layout_of(mesh, r.global, r.to, me_);
    const auto result_elems = target.elems();
    const auto n = size();
    work_.offsets.assign(static_cast<std::size_t>(n) + 1, 0);
    if (is_stacked(mesh, r.global, r.from, r.to, r.axes)) {
      if (window_) {
        for (std::int64_t j = 0; j <= n; ++j) work_.offsets[static_cast<std::size_t>(j)] = j * result_elems;
        return window_->reduce_scatter(r.kind, work_.offsets.data(), in, out);
      }
      if (result_elems <= work_.largest_count) {
        check(MPI_Reduce_scatter_block(in, out, static_cast<int>(result_elems), type, op, comm_), "MPI_Reduce_scatter_block");
        return;
      }
    }
    // Each member's box is packed, then the blocks, of any sizes, are reduced and the own one is put in its place.
    const auto source = layout_of(mesh, r.global, r.from, me_);
    T* const packed_in = work_.send_scratch.template at_least<T>(result_elems * n);
    T* const packed_out = work_.receive_scratch.template at_least<T>(result_elems);
    work_.counts.assign(static_cast<std::size_t>(n), 0);
    for (std::int64_t j = 0; j < n; ++j) {
      const auto box = ranges_of(mesh, r.global, r.to, group_member(mesh, r.axes, me_, j));
      const auto elems = box.elems();
      const auto at = static_cast<std::size_t>(j);
      if (elems > 0) copy_box(packed_in + work_.offsets[at], in, place(box, source, packed(box)));
      work_.offsets[at + 1] = work_.offsets[at] + elems;
      if (elems <= work_.largest_count) work_.counts[at] = static_cast<int>(elems);
    }
    if (window_) window_->reduce_scatter(r.kind, work_.offsets.data(), packed_in, packed_out);
    else if (result_elems <= work_.largest_count)
      check(MPI_Reduce_scatter(packed_in, packed_out, work_.counts.data(), type, op, comm_), "MPI_Reduce_scatter");
    else
      for (std::int64_t j = 0; j < n; ++j) {
        const auto first = work_.offsets[static_cast<std::size_t>(j)];
        const auto elems = work_.offsets[static_cast<std::size_t>(j) + 1] - first;
        for (std::int64_t begin = 0; begin < elems; begin += work_.largest_count) {
          const int count = static_cast<int>(elems - begin < work_.largest_count ? elems - begin : work_.largest_count);
          check(MPI_Reduce(packed_in + first + begin, packed_out + begin, count, type, op, static_cast<int>(j), comm_),
                "MPI_Reduce");
        }
      }
    if (target.held.any()) copy_box(out, packed_out, place(target.held, packed(target.held), target));
  }

  // ---- messages ----

  template <class T>
  void send(std::int64_t to, const T* data, std::int64_t elems) {
    for (std::int64_t begin = 0; begin < elems; begin += work_.largest_count) {
      const int count = static_cast<int>(elems - begin < work_.largest_count ? elems - begin : work_.largest_count);
      work_.requests.push_back(MPI_REQUEST_NULL);
      check(MPI_Isend(data + begin, count, mpi_type<T>(), static_cast<int>(to), 0, comm_, &work_.requests.back()), "MPI_Isend");
    }
  }
  template <class T>
  void receive(std::int64_t from, T* data, std::int64_t elems) {
    for (std::int64_t begin = 0; begin < elems; begin += work_.largest_count) {
      const int count = static_cast<int>(elems - begin < work_.largest_count ? elems - begin : work_.largest_count);
      work_.requests.push_back(MPI_REQUEST_NULL);
      check(MPI_Irecv(data + begin, count, mpi_type<T>(), static_cast<int>(from), 0, comm_, &work_.requests.back()), "MPI_Irecv");
    }
  }
  void finish() {
    check(MPI_Waitall(static_cast<int>(work_.requests.size()), work_.requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
    work_.requests.clear();
  }

  group_key key_;
  coordinates me_;
  std::vector<int> devices_;
  std::int64_t self_;
  mpi_workspace& work_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::unique_ptr<node_window> window_;
  bool asked_for_window_ = false;
  std::vector<void*> peer_in_, peer_out_;  // of the collective at hand
};

}  // namespace gspmd::detail
