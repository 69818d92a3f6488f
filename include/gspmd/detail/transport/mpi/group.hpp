// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/combine.hpp"
#include "gspmd/detail/transport/group_key.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/message_route.hpp"
#include "gspmd/detail/transport/mpi/joint_blocks.hpp"
#include "gspmd/detail/transport/mpi/large_reduction.hpp"
#include "gspmd/detail/transport/mpi/messages.hpp"
#include "gspmd/detail/transport/mpi/node_memory.hpp"
#include "gspmd/detail/transport/mpi/node_window.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {

/// The group of this process over some axes of a mesh, and its collectives. Ranks in its communicator are member numbers.
///
/// A collective goes, in this order of preference,
///  - a permutation by messages, or from members' buffers that lie in node_memory;
///  - a small movement through node_window, where all members share a node;
///  - straight between the members' buffers, where all of them lie in node_memory;
///  - a movement of boxes with gaps, up to a size, through node_window (node_boxes.hpp);
///  - a reduction, where all members share a node, through node_window or, a large all_reduce where each has a core, by messages;
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
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  /// Tells members that wait for this one in shared memory, or will, that it does not come.
  void leave() {
    if (window_) window_->leave();
  }

  [[nodiscard]] bool is_over(const mesh_shape& mesh, axis_mask axes) const { return key_.names(mesh, axes); }

  template <class T>
  void move(const mesh_shape& mesh, const movement& m, const movement_route& route, const T* in, T* out) {
    if (size() == 1)
      return move_from_peers(
          mesh, m, me_, [&](std::int64_t) { return in; }, out, sizeof(T));
    finish_movements();
    if (route.how == movement_route::way::permute) return permute(route, in, out);
    const auto bytes = route.shard_elems * static_cast<std::int64_t>(sizeof(T));
    if (window() != nullptr) window_->begin(subject_of(mesh, m, dtype_of<T>()));
    if (bytes <= work_.small_shard_bytes && window() != nullptr) return move_small(route, in, out);
    const bool shows_boxes = route.node && bytes <= largest_shown_shard_bytes && window() != nullptr;
    if (!work_.memories.empty() && window() != nullptr && find_peers(in, out, false)) {
      move_from_peers(mesh, m, me_, peers{peer_in_}, out, sizeof(T));
      window_->meet();
      return;
    }
    if (shows_boxes)
      return move_through_node(*route.node, node_window::half_bytes / static_cast<std::int64_t>(sizeof(T)), in, out,
                               [this](auto fill) { return window_->template show<T>(fill); });
    switch (route.how) {
      case movement_route::way::gather: return gather(route.block_elems, in, out);
      case movement_route::way::gather_to_boxes: {
        T* const all = work_.send_scratch.template at_least<T>(route.memory.send_elems);
        gather(route.block_elems, in, all);
        for (const auto& r : route.receives) copy_box(out, all, route.boxes[r.box], sizeof(T));
        return;
      }
      case movement_route::way::exchange: return exchange(route.block_elems, in, out);
      case movement_route::way::permute:
      case movement_route::way::messages: return exchange_messages(route, in, out);
    }
  }

  /// Begins movements and does not wait for the others, where their parts go from buffer to buffer or by messages. A group has one such
  /// list under way at most: whatever else it is to do comes after.
  ///
  ///   where arenas are shared     the addresses are shown; finish waits for the others', copies and meets them. Where one lies in no memory
  ///                               that is shared, all go by messages: who knows it of its own posts them at once, the others in finish
  ///   by messages                 one to each member is posted, from and into memory of the group's own; finish waits and copies
  ///                               everything to its place
  ///   small, on one node          all shards go through the window, in one meeting, before start returns
  template <class T>
  void start(const mesh_shape& mesh, std::span<const movement> all, const movement_route* const* routes, const T* const* in,
             T* const* out) {
    finish_movements();
    under_way_ = {&mesh, all, {}, {}, {}, sizeof(T), false, false, false};
    for (std::size_t k = 0; k < all.size(); ++k) {
      under_way_.routes[k] = routes[k];
      under_way_.in[k] = in[k];
      under_way_.out[k] = out[k];
    }
    if (begin_movements(dtype_of<T>())) return;
    for (std::size_t k = 0; k < all.size(); ++k) move(mesh, all[k], *routes[k], in[k], out[k]);
  }
  /// Ends what is under way, if anything is.
  void finish_movements() {
    if (std::exchange(under_way_.is_any, false)) end_movements();
  }
  [[nodiscard]] bool fills(const void* out) const { return under_way_.is_any && under_way_.out[0] == out; }

  template <class T>
  void reduce(const mesh_shape& mesh, const reduction& r, const reduction_route& route, const T* in, T* out) {
    if (size() == 1) return reduce_alone(mesh, r, me_, in, out, sizeof(T));
    finish_movements();
    const auto bytes = route.elems * static_cast<std::int64_t>(sizeof(T));
    const auto is_large = [&] {
      return bytes > work_.small_shard_bytes || (!window_->is_small(bytes) && bytes > static_cast<std::int64_t>(mail_bytes));
    };
    if (window() != nullptr) window_->begin(subject_of(mesh, r, dtype_of<T>()));
    if (window() != nullptr && !work_.memories.empty() && is_large() && find_peers(in, out, !route.scatters)) {
      if (route.scatters) reduce_scatter_from_peers(combiner_of<T>(r.reduced_by), mesh, r, me_, peers{peer_in_}, out);
      else all_reduce_from_peers(combiner_of<T>(r.reduced_by), route.elems, size(), self_, peers{peer_in_}, peers{peer_out_});
      window_->meet();
      return;
    }
    if (route.scatters) reduce_scatter(route, r.reduced_by, in, out);
    else all_reduce(route.elems, r.reduced_by, in, out);
  }

  /// Reductions of one kind: from the members' buffers where these lie in node_memory, else packed as one.
  template <class T>
  void reduce_together(const mesh_shape& mesh, std::span<const reduction> all, const reduction_route* const* routes,
                       const T* const* in, T* const* out) {
    if (size() == 1) {
      for (std::size_t k = 0; k < all.size(); ++k) reduce_alone(mesh, all[k], me_, in[k], out[k], sizeof(T));
      return;
    }
    finish_movements();
    if (window() != nullptr) window_->begin(subject_of(mesh, all[0], dtype_of<T>()));
    const std::span<const reduction_route* const> parts(routes, all.size());
    std::int64_t elems = 0;
    for (const auto* route : parts) elems += route->scatters ? route->offsets.back() : route->elems;
    if (routes[0]->scatters && !work_.memories.empty() && window() != nullptr &&
        elems * static_cast<std::int64_t>(sizeof(T)) > work_.small_shard_bytes) {
      shown_addresses mine{};
      for (std::size_t k = 0; k < all.size(); ++k) mine.of[k] = address_of(work_.memories, in[k]);
      window_->arrive_with(mine);
      if (find_shown(window_->wait(), all.size())) {
        for (std::size_t k = 0; k < all.size(); ++k)
          reduce_scatter_from_peers(combiner_of<T>(all[0].reduced_by), mesh, all[k], me_, shown(k), out[k]);
        window_->meet();
        return;
      }
    }
    T* const packed = work_.send_scratch.template at_least<T>(elems);
    if (!routes[0]->scatters) {
      pack_whole(parts, in, packed);
      all_reduce(elems, all[0].reduced_by, static_cast<const T*>(packed), packed);
      return unpack_whole(parts, static_cast<const T*>(packed), out);
    }
    pack_blocks(parts, size(), in, packed, joint_blocks_);
    T* const result = work_.receive_scratch.template at_least<T>(joint_blocks_.block_elems(self_));
    reduce_blocks(joint_blocks_, all[0].reduced_by, static_cast<const T*>(packed), result);
    unpack_block(parts, self_, static_cast<const T*>(result), out);
  }

  void shift(const mesh_shape& mesh, const ring& r, const ring_buffers& ahead, const ring_buffers* behind) {
    finish_movements();
    const auto next = r.member_ahead(mesh, me_, 1), last = r.member_ahead(mesh, me_, -1);
    const auto bytes = static_cast<std::size_t>(r.bytes);
    const void* const sent_ahead = behind != nullptr ? behind->from(0) : nullptr;
    if (window() != nullptr) window_->begin(subject_of(mesh, r));
    if (!work_.memories.empty() && window() != nullptr && find_peers(ahead.from(0), sent_ahead, behind != nullptr)) {
      std::memcpy(ahead.to(0), peer_in_[static_cast<std::size_t>(next)], bytes);
      if (behind != nullptr) std::memcpy(behind->to(0), peer_out_[static_cast<std::size_t>(last)], bytes);
      window_->meet();
      return;
    }
    messages().receive(next, static_cast<std::byte*>(ahead.to(0)), r.bytes);
    messages().send(last, static_cast<const std::byte*>(ahead.from(0)), r.bytes);
    if (behind != nullptr) {
      messages().receive(last, static_cast<std::byte*>(behind->to(0)), r.bytes);
      messages().send(next, static_cast<const std::byte*>(sent_ahead), r.bytes);
    }
    messages().finish();
  }

  /// `joint`: of one that start() takes.
  [[nodiscard]] movement_route new_route(const mesh_shape& mesh, const movement& m, bool joint = false) const {
    return route_of(mesh, m, me_, self_, work_.small_shard_bytes, joint);
  }
  [[nodiscard]] reduction_route new_route(const mesh_shape& mesh, const reduction& r) const { return route_of(mesh, r, me_); }

 private:
  /// From the number of a member to its buffer.
  struct peers {
    const std::vector<void*>& buffers;
    void* operator()(std::int64_t j) const { return buffers[static_cast<std::size_t>(j)]; }
  };

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(devices_.size()); }
  void check(int code, const char* call) const { check_mpi(code, call, work_.rank); }
  [[nodiscard]] mpi_messages messages() const { return {comm_, work_, work_.requests}; }
  [[nodiscard]] mpi_messages messages_under_way() { return {comm_, work_, own_requests_}; }

  // ---- shared memory ----

  /// Where the members meet, if they share a node. The first call is collective over the group.
  node_window* window() {
    if (work_.shared_memory && !asked_for_window_) {
      asked_for_window_ = true;
      if (share_node()) window_ = std::make_unique<node_window>(comm_, devices_, self_);
      if (window_ && window_->failure() != 0) {
        if (self_ == 0) work_.note_unshared(node_window::bytes(), window_->failure());
        window_.reset();
      }
    }
    return window_.get();
  }
  [[nodiscard]] bool share_node() const {
    return std::all_of(devices_.begin(), devices_.end(), [this](int rank) {
      return work_.nodes[static_cast<std::size_t>(rank)] == work_.nodes[static_cast<std::size_t>(work_.rank)];
    });
  }

  struct addresses {
    node_address in, out;
  };
  /// Meets the members and finds their buffers in this process; false, on all alike, if not all lie in node_memory.
  bool find_peers(const void* in, const void* out, bool needs_out) {
    const auto& memories = work_.memories;
    const addresses mine{address_of(memories, in), needs_out ? address_of(memories, out) : 0};
    const auto parity = window_->meet_with(mine);
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
  static void fill_gaps(const movement_route& route, T* out) {
    for (const auto& gap : route.gaps) fill_box(out, gap.bits, route.boxes[gap.box], sizeof(T));
  }

  template <class T>
  void move_small(const movement_route& route, const T* in, T* out) {
    const auto shard_of = window_->share(in, route.shard_elems);
    fill_gaps(route, out);
    for (const auto& t : route.takes) copy_box(out, t.peer == self_ ? in : shard_of(t.peer), route.boxes[t.box], sizeof(T));
  }

  template <class T>
  void gather(std::int64_t elems, const T* in, T* all) {
    if (elems == 0) return;
    if (elems * size() <= work_.largest_count) {
      const int count = static_cast<int>(elems);
      check(MPI_Allgather(in, count, mpi_type<T>(), all, count, mpi_type<T>(), comm_), "MPI_Allgather");
      return;
    }
    for (std::int64_t j = 0; j < size(); ++j) {
      messages().receive(j, all + j * elems, elems);
      messages().send(j, in, elems);
    }
    messages().finish();
  }

  template <class T>
  void exchange(std::int64_t elems, const T* in, T* out) {
    if (elems * size() <= work_.largest_count) {
      const int count = static_cast<int>(elems);
      check(MPI_Alltoall(in, count, mpi_type<T>(), out, count, mpi_type<T>(), comm_), "MPI_Alltoall");
      return;
    }
    for (std::int64_t j = 0; j < size(); ++j) {
      messages().receive(j, out + j * elems, elems);
      messages().send(j, in + j * elems, elems);
    }
    messages().finish();
  }

  template <class T>
  void exchange_messages(const movement_route& route, const T* in, T* out) {
    T* const packed_in = work_.send_scratch.template at_least<T>(route.memory.send_elems);
    T* const packed_out = work_.receive_scratch.template at_least<T>(route.memory.receive_elems);
    for (const auto& r : route.receives) messages().receive(r.peer, (r.box == no_box ? out : packed_out) + r.at, r.elems);
    for (const auto& s : route.sends) {
      if (s.box != no_box) copy_box(packed_in, in, route.boxes[s.box], sizeof(T));
      messages().send(s.peer, (s.box == no_box ? in : packed_in) + s.at, s.elems);
    }
    for (const int own : route.own) copy_box(out, in, route.boxes[own], sizeof(T));
    fill_gaps(route, out);
    messages().finish();
    for (const auto& r : route.receives)
      if (r.box != no_box) copy_box(out, packed_out, route.boxes[r.box], sizeof(T));
  }

  // ---- movements under way ----

  struct shown_addresses {
    node_address of[most_moved_together];
  };

  /// Calls visit(k, message, at) for the parts of the messages to or from each member, of all movements, where they lie one after the
  /// other, and end(member, at, elems) for each message.
  template <class Visit, class End>
  void for_each_message(std::vector<routed_message> movement_route::*list, Visit visit, End end) const {
    std::int64_t at = 0;
    for (std::int64_t j = 0; j < size(); ++j) {
      const auto begin = at;
      for (std::size_t k = 0; k < under_way_.all.size(); ++k)
        for (const auto& part : under_way_.routes[k]->*list)
          if (part.peer == j) {
            visit(k, part, at);
            at += part.elems;
          }
      if (at > begin) end(j, begin, at - begin);
    }
  }
  [[nodiscard]] std::int64_t elems_of(std::vector<routed_message> movement_route::*list) const {
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < under_way_.all.size(); ++k)
      for (const auto& part : under_way_.routes[k]->*list) sum += part.elems;
    return sum;
  }
  /// False where they are not to be started, and nothing is done.
  bool begin_movements(dtype type) {
    auto& u = under_way_;
    if (size() == 1) return false;
    u.meets = window() != nullptr;
    std::int64_t shards = 0;
    for (std::size_t k = 0; k < u.all.size(); ++k) shards += u.routes[k]->shard_elems * u.elem_bytes;
    if (u.meets && shards <= (work_.memories.empty() ? node_window::half_bytes : work_.small_shard_bytes)) {
      window_->begin(subject_of(*u.mesh, u.all[0], type));
      move_small_together();
      return true;
    }
    if (u.meets && work_.memories.empty()) return false;
    shown_addresses mine{};
    for (std::size_t k = 0; k < u.all.size(); ++k) mine.of[k] = address_of(work_.memories, u.in[k]);
    u.is_any = true;
    if (!u.meets) {
      post_together();
      return true;
    }
    window_->begin(subject_of(*u.mesh, u.all[0], type));
    window_->arrive_with(mine);
    for (std::size_t k = 0; k < u.all.size() && !u.is_posted; ++k)
      if (mine.of[k] == 0) {
        u.is_posted = true;
        post_together();
      }
    return true;
  }
  /// All shards of a member lie in the window one after the other, at the same places in each.
  void move_small_together() {
    const auto& u = under_way_;
    const auto width = u.elem_bytes;
    const auto shards_of = window_->show<std::byte>([&](std::byte* memory) {
      for (std::size_t k = 0; k < u.all.size(); ++k)
        memory = std::copy_n(static_cast<const std::byte*>(u.in[k]), u.routes[k]->shard_elems * width, memory);
    });
    std::int64_t begin = 0;
    for (std::size_t k = 0; k < u.all.size(); ++k) {
      const auto& route = *u.routes[k];
      for (const auto& gap : route.gaps) fill_box(u.out[k], gap.bits, route.boxes[gap.box], width);
      for (const auto& t : route.takes)
        copy_box(u.out[k], t.peer == self_ ? u.in[k] : shards_of(t.peer) + begin, route.boxes[t.box], width);
      begin += route.shard_elems * width;
    }
  }
  void post_together() {
    const auto& u = under_way_;
    const auto width = u.elem_bytes;
    auto* const received = own_receive_.at_least<std::byte>(elems_of(&movement_route::receives) * width);
    auto* const sent = own_send_.at_least<std::byte>(elems_of(&movement_route::sends) * width);
    for_each_message(
        &movement_route::receives, [](std::size_t, const routed_message&, std::int64_t) {},
        [&](std::int64_t j, std::int64_t at, std::int64_t elems) {
          messages_under_way().receive(j, received + at * width, elems * width);
        });
    for_each_message(
        &movement_route::sends,
        [&](std::size_t k, const routed_message& part, std::int64_t at) {
          const auto* const in = static_cast<const std::byte*>(u.in[k]);
          if (part.box == no_box) std::copy_n(in + part.at * width, part.elems * width, sent + at * width);
          else copy_box(sent + (at - part.at) * width, in, u.routes[k]->boxes[part.box], width);
        },
        [&](std::int64_t j, std::int64_t at, std::int64_t elems) {
          messages_under_way().send(j, static_cast<const std::byte*>(sent + at * width), elems * width);
        });
    for (std::size_t k = 0; k < u.all.size(); ++k) {
      const auto& route = *u.routes[k];
      for (const int own : route.own) copy_box(u.out[k], u.in[k], route.boxes[own], width);
      for (const auto& gap : route.gaps) fill_box(u.out[k], gap.bits, route.boxes[gap.box], width);
    }
  }
  void take_together() {
    messages_under_way().finish();
    const auto width = under_way_.elem_bytes;
    const auto* const received = own_receive_.at_least<std::byte>(elems_of(&movement_route::receives) * width);
    for_each_message(
        &movement_route::receives,
        [&](std::size_t k, const routed_message& part, std::int64_t at) {
          auto* const out = static_cast<std::byte*>(under_way_.out[k]);
          if (part.box == no_box) std::copy_n(received + at * width, part.elems * width, out + part.at * width);
          else copy_box(out, received + (at - part.at) * width, under_way_.routes[k]->boxes[part.box], width);
        },
        [](std::int64_t, std::int64_t, std::int64_t) {});
  }
  void end_movements() {
    const auto& u = under_way_;
    if (!u.meets) return take_together();
    if (!find_shown(window_->wait(), u.all.size())) {
      if (!u.is_posted) post_together();
      return take_together();
    }
    for (std::size_t k = 0; k < u.all.size(); ++k) move_from_peers(*u.mesh, u.all[k], me_, shown(k), u.out[k], u.elem_bytes);
    window_->meet();
  }
  /// Finds, in this process, the `count` buffers that each member showed; false, on all alike, if not all lie in node_memory.
  bool find_shown(unsigned parity, std::size_t count) {
    bool found = true;
    peer_in_.resize(count * devices_.size());
    for (std::size_t j = 0; j < devices_.size(); ++j) {
      const auto note = window_->note_of<shown_addresses>(static_cast<std::int64_t>(j), parity);
      for (std::size_t k = 0; k < count; ++k) {
        peer_in_[k * devices_.size() + j] = find(work_.memories, devices_[j], note.of[k]);
        found = found && peer_in_[k * devices_.size() + j] != nullptr;
      }
    }
    return found;
  }
  /// From the number of a member to its buffer number k of those.
  struct shown_buffers {
    void* const* buffers;
    void* operator()(std::int64_t j) const { return buffers[j]; }
  };
  [[nodiscard]] shown_buffers shown(std::size_t k) const { return {peer_in_.data() + k * devices_.size()}; }

  /// Members that have nothing to do with each other do not wait for each other, as they would in a meeting. Who sends a shard
  /// that lies in node_memory sends its address instead, and hears when it was copied from there.
  template <class T>
  void permute(const movement_route& route, const T* in, T* out) {
    constexpr int address_tag = 1, done_tag = 2,
                  address_elems = static_cast<int>((sizeof(node_address) + sizeof(T) - 1) / sizeof(T));
    const auto& memories = work_.memories;
    const auto elems = route.shard_elems;
    const auto bytes = elems * static_cast<std::int64_t>(sizeof(T)),
               address_bytes = static_cast<std::int64_t>(sizeof(node_address));
    if (memories.empty() || !work_.shared_memory || elems > work_.largest_count || bytes <= work_.small_shard_bytes ||
        bytes < address_bytes)  // on all members alike
      return exchange_messages(route, in, out);
    const int count = static_cast<int>(elems);
    const auto device = [&](std::int64_t j) { return devices_[static_cast<std::size_t>(j)]; };
    MPI_Request arrives = MPI_REQUEST_NULL;
    const int source = route.receives.empty() ? -1 : static_cast<int>(route.receives[0].peer);  // a shard has one
    if (source >= 0) check(MPI_Irecv(out, count, mpi_type<T>(), source, MPI_ANY_TAG, comm_, &arrives), "MPI_Irecv");
    const auto address = address_of(memories, in);
    T address_message[address_elems]{};
    std::memcpy(address_message, &address, sizeof address);
    const auto reads_in_place = [&](const routed_message& s) { return find(memories, device(s.peer), address) != nullptr; };
    for (const auto& s : route.sends)
      if (reads_in_place(s)) messages().send_piece(s.peer, address_message, address_elems, address_tag);
      else messages().send(s.peer, in, elems);
    for (const int own : route.own) copy_box(out, in, route.boxes[own], sizeof(T));
    MPI_Status status;
    check(MPI_Wait(&arrives, &status), "MPI_Wait");
    if (source >= 0 && status.MPI_TAG == address_tag) {
      node_address theirs = 0;
      std::memcpy(&theirs, out, sizeof theirs);
      copy_shard(out, find(memories, device(source), theirs), bytes);
      messages().send_piece(source, out, 0, done_tag);
    }
    for (const auto& s : route.sends)
      if (reads_in_place(s))
        check(MPI_Recv(nullptr, 0, mpi_type<T>(), static_cast<int>(s.peer), done_tag, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
    messages().finish();
  }

  // ---- reductions ----

  /// MPI has no bf16, the sums of Open MPI 4.1 saturate where integers of 8 and 16 bits must wrap around (its op/avx), and MPICH 4.0 takes
  /// the maximum of unsigned integers as if they were signed.
  template <class T>
  static constexpr bool may_be_reduced_here =
      own_element<T> || is_narrow(dtype_of<T>()) || (std::is_unsigned_v<T> && !std::is_same_v<T, bool>);
  template <class T>
  static constexpr bool is_reduced_here(monoid kind) {
    return may_be_reduced_here<T> &&
           (own_element<T> || is_narrow(dtype_of<T>()) || kind == monoid::maximum || kind == monoid::minimum);
  }

  template <class T>
  void all_reduce(std::int64_t elems, monoid kind, const T* in, T* out) {
    if (elems == 0) return;  // on all members alike
    if (window_ && !work_.oversubscribed && elems * static_cast<std::int64_t>(sizeof(T)) >= all_reduce_by_messages_bytes)
      return all_reduce_by_messages(messages(), work_.receive_scratch, kind, size(), self_, elems, in, out);
    if (window_) return window_->all_reduce(combiner_of<T>(kind), elems, in, out);
    if (elems * size() * static_cast<std::int64_t>(sizeof(T)) <= most_gathered_bytes)
      return all_reduce_gathered(elems, kind, in, out);
    if (is_reduced_here<T>(kind) || (std::is_floating_point_v<T> && (kind == monoid::maximum || kind == monoid::minimum)))
      return all_reduce_by_messages(messages(), work_.receive_scratch, kind, size(), self_, elems, in, out);
    messages().for_each_piece(elems, [&](std::int64_t begin, int count) {
      check(MPI_Allreduce(in == out ? MPI_IN_PLACE : static_cast<const void*>(in + begin), out + begin, count, mpi_type<T>(),
                          mpi_op<T>(kind), comm_),
            "MPI_Allreduce");
    });
  }

  /// A few values, on which programs decide: every member reduces all of them in the order of the members, as in shared memory.
  /// MPI may take another order, and for it the maximum of a number and a NaN is either, on one member this and on another that.
  static constexpr std::int64_t most_gathered_bytes = 16 << 10;
  template <class T>
  void all_reduce_gathered(std::int64_t elems, monoid kind, const T* in, T* out) {
    T* const all = work_.receive_scratch.template at_least<T>(elems * size());
    gather(elems, in, all);
    reduce_row(
        combiner_of<T>(kind), out, size(), [&](std::int64_t j) { return all + j * elems; }, 0, elems, false);
  }

  template <class T>
  void reduce_scatter(const reduction_route& route, monoid kind, const T* in, T* out) {
    if (route.is_stacked) return reduce_blocks(route, kind, in, out);
    // Each member's box is packed, then the blocks, of any sizes, are reduced and the own one is put in its place.
    T* const packed_in = work_.send_scratch.template at_least<T>(route.result_elems * size());
    T* const packed_out = work_.receive_scratch.template at_least<T>(route.result_elems);
    for (const int box : route.packs) copy_box(packed_in, in, route.boxes[box], sizeof(T));
    reduce_blocks(route, kind, static_cast<const T*>(packed_in), packed_out);
    if (route.own != no_box) copy_box(out, packed_out, route.boxes[route.own], sizeof(T));
  }

  /// `in` holds the members' blocks one after the other.
  template <class T>
  void reduce_blocks(const reduction_route& route, monoid kind, const T* in, T* out) {
    if (window_) return window_->reduce_scatter(combiner_of<T>(kind), route.offsets.data(), in, out);
    if constexpr (may_be_reduced_here<T>)
      if (is_reduced_here<T>(kind)) return reduce_received_blocks(route, kind, in, out);
    const auto type = mpi_type<T>();
    const auto op = mpi_op<T>(kind);
    if (route.offsets.back() > work_.largest_count) {
      for (std::int64_t j = 0; j < size(); ++j) {
        const auto first = route.offsets[static_cast<std::size_t>(j)];
        messages().for_each_piece(route.offsets[static_cast<std::size_t>(j) + 1] - first, [&](std::int64_t begin, int count) {
          check(MPI_Reduce(in + first + begin, out + begin, count, type, op, static_cast<int>(j), comm_), "MPI_Reduce");
        });
      }
    } else if (route.is_stacked) {
      check(MPI_Reduce_scatter_block(in, out, static_cast<int>(route.result_elems), type, op, comm_), "MPI_Reduce_scatter_block");
    } else {
      check(MPI_Reduce_scatter(in, out, route.counts.data(), type, op, comm_), "MPI_Reduce_scatter");
    }
  }

  template <class T>
  void reduce_received_blocks(const reduction_route& route, monoid kind, const T* in, T* out) {
    const auto end = [&](std::int64_t j) { return route.offsets[static_cast<std::size_t>(j) + 1]; };
    const auto begin = [&](std::int64_t j) { return route.offsets[static_cast<std::size_t>(j)]; };
    const auto elems = end(self_) - begin(self_);
    std::vector<T> blocks(static_cast<std::size_t>(elems * size()));
    for (std::int64_t j = 0; j < size(); ++j) {
      messages().receive(j, blocks.data() + j * elems, elems);
      messages().send(j, in + begin(j), end(j) - begin(j));
    }
    messages().finish();
    if (elems == 0) return;
    reduce_row(
        combiner_of<T>(kind), out, size(), [&](std::int64_t j) { return blocks.data() + j * elems; }, 0, elems, false);
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

  struct movements_under_way {
    const mesh_shape* mesh = nullptr;
    std::span<const movement> all;
    const movement_route* routes[most_moved_together];
    const void* in[most_moved_together];
    void* out[most_moved_together];
    std::int64_t elem_bytes = 0;
    bool meets = false;  // in the window; else they go by messages
    bool is_posted = false;
    bool is_any = false;
  };
  movements_under_way under_way_{};
  reduction_route joint_blocks_;           // of reduce_together
  growing_buffer own_send_, own_receive_;  // of messages under way
  std::vector<MPI_Request> own_requests_;
};

}  // namespace gspmd::detail
