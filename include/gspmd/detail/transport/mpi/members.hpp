// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/group_key.hpp"
#include "gspmd/detail/transport/mpi/messages.hpp"
#include "gspmd/detail/transport/mpi/node_memory.hpp"
#include "gspmd/detail/transport/mpi/node_window.hpp"

namespace gspmd::detail {

/// The state that the collectives of a group over some axes of a mesh share: the members, this member's number, and
/// the window for synchronising. The rank of a process in the group's MPI communicator is its member number.
class mpi_members {
 public:
  /// Collective over the members only, so the ranks of other groups need not call it. Its messages have the subject
  /// of `parent`, whose members are all ranks.
  mpi_members(const mpi_channel& parent, const mesh_shape& mesh, axis_mask axes, mpi_workspace& workspace)
      : me(mesh.coordinates_of(workspace.rank)), self(group_index(mesh, axes, me)), work(workspace) {
    channel_.ranks = members_of(mesh, axes, me);
    if (size() == 1) return;
    detail::roll_call({parent, work, work.requests}, size(), self, [this](std::int64_t j) { return device(j); });
    MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    check(MPI_Comm_group(parent.comm, &all), "MPI_Comm_group");
    check(MPI_Group_incl(all, static_cast<int>(size()), devices().data(), &members), "MPI_Group_incl");
    check(MPI_Comm_create_group(parent.comm, members, 0, &channel_.comm), "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(comm(), MPI_ERRORS_RETURN);
    MPI_Group_free(&members);
    MPI_Group_free(&all);
  }
  mpi_members(const mpi_members&) = delete;
  mpi_members& operator=(const mpi_members&) = delete;
  /// Collective over the members. Must be called before MPI_Finalize.
  ~mpi_members() {
    if (comm() != MPI_COMM_NULL) MPI_Comm_free(&channel_.comm);
  }

  [[nodiscard]] const mpi_channel& channel() const { return channel_; }
  [[nodiscard]] MPI_Comm comm() const { return channel_.comm; }
  [[nodiscard]] const std::vector<int>& devices() const { return channel_.ranks; }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(devices().size()); }
  void check(int code, const char* call) const { check_mpi(code, call, work.rank); }
  [[nodiscard]] mpi_messages messages() const { return messages(work.requests); }
  [[nodiscard]] mpi_messages messages(std::vector<mpi_request>& requests) const { return {channel_, work, requests}; }
  [[nodiscard]] int device(std::int64_t member) const { return devices()[static_cast<std::size_t>(member)]; }

  /// Sets the subject of the following meetings, messages and MPI calls. All objects that `subject` points to must
  /// exist until these end.
  void begin(const meeting_subject& subject) { channel_.begin(subject, work); }
  /// Waits for all members. It is called before each MPI collective.
  void roll_call() {
    if (window_) window_->meet();
    else detail::roll_call(messages(), size(), self, [](std::int64_t j) { return j; });
  }

  /// Returns the window for synchronising, or null if the members do not share a node or its memory. The first call
  /// is collective over the group.
  node_window* window() {
    if (work.shared_memory && !asked_for_window_) {
      asked_for_window_ = true;
      if (share_node()) {
        roll_call();
        window_ = std::make_unique<node_window>(channel_, self, work.watch, work.oversubscribed);
      }
      if (window_ && window_->failure() != 0) {
        if (self == 0) work.note_unshared(node_window::bytes(), window_->failure());
        window_.reset();
      }
    }
    return window_.get();
  }
  /// The addresses of the buffers that a member publishes: their addresses in node_memory, or 0 for buffers in other
  /// memory.
  template <std::size_t N>
  struct addresses {
    node_address of[N];
  };
  /// Finds, in this process, the first `count` buffers that each member published when it arrived. Returns false, on
  /// all members, if some buffer is not in node_memory.
  template <std::size_t N>
  bool find_shown(unsigned parity, std::size_t count) {
    bool found = true;
    buffers_.resize(count * devices().size());
    for (std::size_t j = 0; j < devices().size(); ++j) {
      const auto note = window_->template note_of<addresses<N>>(static_cast<std::int64_t>(j), parity);
      for (std::size_t k = 0; k < count; ++k) {
        buffers_[k * devices().size() + j] = find(work.memories, devices()[j], note.of[k]);
        found = found && buffers_[k * devices().size() + j] != nullptr;
      }
    }
    return found;
  }
  /// Synchronises the members and finds their buffers that correspond to `first` and, if it is not null, to `second`.
  bool find_peers(const void* first, const void* second) {
    const auto& memories = work.memories;
    window_->arrive_with(addresses<2>{{address_of(memories, first), second != nullptr ? address_of(memories, second) : 0}});
    return find_shown<2>(window_->wait(), second != nullptr ? 2 : 1);
  }
  /// The function from the number of a member to buffer number k that find_shown found for it.
  struct shown_buffers {
    void* const* buffers;
    void* operator()(std::int64_t j) const { return buffers[j]; }
  };
  [[nodiscard]] shown_buffers shown(std::size_t k) const { return {buffers_.data() + k * devices().size()}; }

  const coordinates me;
  const std::int64_t self;
  mpi_workspace& work;

 private:
  [[nodiscard]] bool share_node() const {
    return std::all_of(devices().begin(), devices().end(), [this](int rank) {
      return work.nodes[static_cast<std::size_t>(rank)] == work.nodes[static_cast<std::size_t>(work.rank)];
    });
  }

  mpi_channel channel_;
  std::unique_ptr<node_window> window_;
  bool asked_for_window_ = false;
  std::vector<void*> buffers_;  // of the current collective
};

}  // namespace gspmd::detail
