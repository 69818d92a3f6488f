// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/support/no_memory.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/program/array.hpp"
#include "gspmd/program/sharded_array.hpp"
#include "gspmd/program/tree.hpp"

namespace gspmd {
namespace detail {

/// Returns the box of a tensor that device `source` sends to device `to`. If they are the same device, the box is
/// empty. If a shard has replicas, the sender is the device with the coordinates of `to` along the axes that do not
/// split the tensor.
///
///     mesh x=2,y=2, tensor [4,6] split [x,_], to = device 0 (0,0)
///     ->  device 2 (1,0) sends rows 2 and 3; devices 1 and 3 send nothing
inline held_ranges box_for(const mesh_shape& mesh, const planned_value& v, std::int64_t source, std::int64_t to) {
  const auto at = mesh.coordinates_of(source), there = mesh.coordinates_of(to);
  auto box = ranges_of(mesh, v.global, v.layout, at);
  bool is_sent = source != to;
  for (int a = 0; a < mesh.axis_count(); ++a)
    is_sent = is_sent && ((v.layout.split_axes() & axis_bit(a)) != 0 || at[a] == there[a]);
  if (!is_sent) {
    box.rank = 1;
    box.begin[0] = box.end[0] = 0;
  }
  return box;
}

/// Sends the shards of the devices that `comm` holds to device `to`, each element once. `whole` receives them if `comm`
/// holds `to`, and may be null otherwise.
///
///     mesh x=2, tensor [4,6] split [x,_], to = 0
///     ->  device 0 copies rows 0 and 1 to `whole`, device 1 sends rows 2 and 3
template <class T, class Comm>
void send_shards_to(Comm& comm, int to, const mesh_shape& mesh, const planned_value& v, const std::vector<const T*>& shards,
                    T* whole) {
  static_assert(
      requires(const T* const* i, T* const* o, const std::int64_t* const* n) { comm.exchange(i, n, o, n); },
      "gspmd: collect_on: the communicator has no exchange(in, sent, out, received)");
  const auto devices = static_cast<std::size_t>(comm.device_count());
  const auto held = static_cast<std::size_t>(comm.local_count());
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  const auto put = [&](const held_ranges& box, const buffer_layout& from, const T* data) {
    if (box.any()) copy_box(whole, data, place(box, from, layout_of(mesh, v.global, sharding{}, mesh.coordinates_of(to))), bytes);
  };
  std::vector<std::vector<std::int64_t>> sent(held, std::vector<std::int64_t>(devices)), received = sent;
  std::vector<std::unique_ptr<T[]>> memory;
  std::vector<const T*> in;
  std::vector<T*> out;
  std::vector<const std::int64_t*> sent_of, received_of;
  for (std::size_t i = 0; i < held; ++i) {
    const int me = comm.device(static_cast<int>(i));
    const auto shard = layout_of(mesh, v.global, v.layout, mesh.coordinates_of(me));
    const auto box = box_for(mesh, v, me, to);
    in.push_back(shards[i]);
    out.push_back(nullptr);
    if (me == to) {
      put(shard.held, shard, shards[i]);
      std::int64_t all = 0;
      for (std::size_t k = 0; k < devices; ++k)
        all += received[i][k] = box_for(mesh, v, static_cast<std::int64_t>(k), to).elems();
      memory.emplace_back(new_elements<T>(all, "the received elements"));
      out.back() = memory.back().get();
    } else if (box.any()) {
      sent[i][static_cast<std::size_t>(to)] = box.elems();
      if (const auto placed = place(box, shard, packed(box)); placed.box.row() != box.elems()) {  // not contiguous
        memory.emplace_back(new_elements<T>(box.elems(), "the sent elements"));
        copy_box(memory.back().get(), shards[i], placed, bytes);
        in.back() = memory.back().get();
      }
    }
    sent_of.push_back(sent[i].data());
    received_of.push_back(received[i].data());
  }
  comm.template exchange<T>(in.data(), sent_of.data(), out.data(), received_of.data());
  for (std::size_t i = 0; i < held; ++i) {
    if (comm.device(static_cast<int>(i)) != to) continue;
    const T* next = out[i];
    for (std::size_t k = 0; k < devices; ++k) {
      const auto box = box_for(mesh, v, static_cast<std::int64_t>(k), to);
      put(box, packed(box), next);
      next += box.elems();
    }
  }
}

}  // namespace detail

/// Returns the whole array of a sharded array on one device, for example to write it to a file. A group of sharded
/// arrays gives a group of arrays.
///
/// On the processes of other devices, the arrays are empty. It works with shards of compiled steps and of programs that
/// were compiled at run time.
///
/// **Communication.** Collective. Each element that the device does not hold is sent to it once. Other devices receive
/// nothing; with `collect` all devices receive all elements.
/// **Errors.** Throws gspmd::error on all devices if the device does not exist, or if an array is partial or empty.
/// **Example.**
///
///     const auto whole = collect_on(comm, 0, w);
///     if (comm.device(0) == 0) save(whole);
template <communicator Comm, class Tree>
auto collect_on(Comm& comm, int device, const Tree& tree) {
  if (device < 0 || device >= comm.device_count())
    throw error("collect_on: there is no device " + std::to_string(device) + "; the communicator has " +
                std::to_string(comm.device_count()) + " devices, which count from 0");
  bool is_here = false;
  for (int i = 0; i < comm.local_count(); ++i) is_here = is_here || comm.device(i) == device;
  return transform_leaves(
      [&]<class T>(const sharded_array<T>& shards) {
        const auto& v = shards.planned();
        if (v.layout.partial != 0)
          throw error("collect_on: the array is partial, so devices hold partial values of it; reshard it in a program first");
        require_devices(comm, static_cast<int>(shards.mesh().device_count()));
        using element = detail::listed_element_t<T>;
        array<T> whole;
        if (is_here) whole = array<T>(v.global);
        std::vector<const element*> in;
        for (int i = 0; i < comm.local_count(); ++i) in.push_back(reinterpret_cast<const element*>(shards.data(i)));
        detail::send_shards_to<element>(comm, device, shards.mesh(), v, in, reinterpret_cast<element*>(whole.data()));
        return whole;
      },
      tree);
}

}  // namespace gspmd
