// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "gspmd/dynamic/session.hpp"
#include "gspmd/layouts/placed_array.hpp"

namespace gspmd {
namespace detail {

template <class T, class Comm, class Shards>
sharded_array<T> brought_to_program(Comm& comm, const dynamic::program& p, std::size_t k, const placed_tables& from,
                                    const Shards& shards) {
  check_leaves("to_step", "input", k, 1, p.input_count());
  const held_devices devices(comm, static_cast<int>(p.mesh_info().shape.device_count()));
  const auto kept = std::make_shared<const dynamic::program>(p);
  const auto& wanted = leaf_of(kept->view(), k);
  if (dtype_of<T>() != wanted.type || !(from.global == wanted.global))
    throw error("to_step: " + words_of_leaf(kept->view(), k) + " is " + words_of_tensor(wanted.type, wanted.global) +
                " and the array given is " + words_of_tensor(dtype_of<T>(), from.global) +
                std::string(differing_dim_text(wanted.global, from.global).view()));
  const auto to = tables_of(*kept->view().mesh, wanted);
  require_same_tensor(from, to);
  sharded_array<T> result(devices.local_count(), *kept->view().mesh, wanted, kept);
  const auto in = shard_pointers<const T>(comm, shards);
  const auto out = shard_pointers<T>(comm, result);
  redistribute_shards<T>(comm, from, to, in.data(), out.data());
  return result;
}

}  // namespace detail

namespace dynamic {

/// Returns the tensor of `from`, with the sharding of input `k` of program `p`. `from` may come from another program or
/// a compiled step, and from another mesh of the same devices.
///
/// **Communication.** Collective. Each element that a device needs and does not hold is sent to it once.
/// **Errors.** gspmd::error if the input does not exist, if the type, the shape or the number of devices differs, or if
/// the value is partial.
/// **Example.**
///
///     auto u = to_step(comm, second, 0, u_of_first);
template <communicator Comm, class T>
sharded_array<T> to_step(Comm& comm, const program& p, std::size_t k, const sharded_array<T>& from) {
  return detail::brought_to_program<T>(comm, p, k, detail::tables_of(from.mesh(), from.planned()), from);
}
/// The same for an array with its own placement, for example block-cyclic.
template <communicator Comm, class T, placement... P>
sharded_array<T> to_step(Comm& comm, const program& p, std::size_t k, const placed_array<T, P...>& from) {
  return detail::brought_to_program<T>(comm, p, k, from.layout().tables(), from);
}

}  // namespace dynamic
}  // namespace gspmd
