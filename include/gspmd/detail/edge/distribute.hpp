// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <tuple>
#include <vector>

#include "gspmd/detail/ir/kernels/collectives.hpp"
#include "gspmd/detail/ir/tree.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/kernels/fill.hpp"
#include "gspmd/detail/transport/communicator.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"
#include "gspmd/error.hpp"

/// Copies between whole arrays and shards.
namespace gspmd::detail {

/// Fills the shard of the device at `at` from a whole array. If the value is partial, the first device along its axes
/// gets the data, and the other devices get the identity.
inline void cut_shard(const mesh_shape& mesh, const planned_value& v, const coordinates& at, const void* whole, void* shard) {
  bool is_first = true;
  for (int a = 0; a < mesh.axis_count(); ++a) is_first = is_first && ((v.layout.partial & axis_bit(a)) == 0 || at[a] == 0);
  if (!is_first) {
    fill_with_identity(v, v.layout.reduced_by, shard);
    return;
  }
  sharding layout = v.layout;
  layout.partial = 0;
  move_from_peers(
      mesh, movement{v.global, {}, layout, 0}, at, [whole](std::int64_t) { return whole; }, shard, bytes_of(v.type));
}

/// True if the devices of a communicator share the caller's memory. If so, they write their part of an output in place;
/// otherwise they gather the output.
template <class Comm>
inline constexpr bool shares_memory = requires { requires Comm::shares_memory; };

/// Combines shards, one per device of `comm`, into a whole array. Uses the first of several replicas. Collective.
template <class Comm>
void join_shards(Comm& comm, const mesh_shape& mesh, const planned_value& v, const void* const* shards, void* whole) {
  if constexpr (shares_memory<Comm>) {
    for (int d = 0; d < comm.local_count(); ++d) {
      const auto at = mesh.coordinates_of(comm.device(d));
      bool is_first = true;
      for (int a = 0; a < mesh.axis_count(); ++a)
        is_first = is_first && ((v.layout.split_axes() & axis_bit(a)) != 0 || at[a] == 0);
      if (!is_first) continue;
      const auto box = ranges_of(mesh, v.global, v.layout, at);
      if (!box.any()) continue;
      copy_box(whole, shards[d], place(box, layout_of(mesh, v.global, v.layout, at), layout_of(mesh, v.global, sharding{}, at)),
               bytes_of(v.type), false);
    }
  } else if constexpr (takes_types<Comm>) {
    const movement m{v.global, v.layout, {}, movement_axes(mesh, v.global, v.layout, {})};
    const std::vector<void*> out(static_cast<std::size_t>(comm.local_count()), whole);
    comm.move(mesh, m, moved_as(v.type), shards, out.data());
  } else {
    with_element_type(moved_as(v.type), [&](auto element) {
      using T = decltype(element);
      const movement m{v.global, v.layout, {}, movement_axes(mesh, v.global, v.layout, {})};
      std::vector<T*> out(static_cast<std::size_t>(comm.local_count()), static_cast<T*>(whole));
      std::vector<const T*> in;
      for (int d = 0; d < comm.local_count(); ++d) in.push_back(static_cast<const T*>(shards[d]));
      comm.template move<T>(mesh, m, in.data(), out.data());
    });
  }
}

/// Reduces the partial values on the devices of `comm`. Afterwards the value is not partial. Collective.
template <class Comm>
std::vector<aligned_bytes> reduce_terms(Comm& comm, const mesh_shape& mesh, planned_value& v, std::vector<const void*>& shards) {
  std::vector<aligned_bytes> sums;
  std::vector<void*> to;
  for (int d = 0; d < comm.local_count(); ++d) {
    sums.emplace_back(elements(v.local) * bytes_of(v.type), "the sum of a partial result");
    to.push_back(sums.back().get());
  }
  sharding whole = v.layout;
  whole.partial = 0;
  const reduction r =
      numbered(mesh, kernels::by_parts({v.global, v.layout, whole, v.layout.partial, v.layout.reduced_by}, v.type));
  if (is_own(v.type))
    throw error("a partial result of an element type of your own is not put together; reduce it in the program");
  if constexpr (takes_types<Comm>) {
    const auto type = part_of(v.type);
    comm.reduce(mesh, r, type, combiner_at(type, r.reduced_by), shards.data(), to.data());
  } else {
    with_real_type(part_of(v.type), [&]<class T>(T) {
      comm.template reduce<T>(mesh, r, reinterpret_cast<const T* const*>(shards.data()), reinterpret_cast<T* const*>(to.data()));
    });
  }
  v.layout = whole;
  shards.assign(to.begin(), to.end());
  return sums;
}

/// Returns the arrays of the outputs in the form of the callable's result: an array for each value, in tuples and the
/// user's structs. `First` is the number of its first array.
template <class Result, std::size_t First, class Arrays>
auto like_result(Arrays& arrays) {
  if constexpr (is_leaf<Result>) {
    return std::move(std::get<First>(arrays));
  } else {
    return [&]<std::size_t... K>(std::index_sequence<K...>) {
      std::tuple<decltype(like_result<part_type<K, Result>, First + leaves_before<Result, K>()>(arrays))...> parts{
          like_result<part_type<K, Result>, First + leaves_before<Result, K>()>(arrays)...};
      return typename regrouped<Result, decltype(parts)>::type{std::move(std::get<K>(parts))...};
    }(std::make_index_sequence<part_count<Result>()>{});
  }
}

}  // namespace gspmd::detail
