// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "collective_oracle.hpp"

/// Movements with a map, compared with the definition index by index. This code does not use the library's
/// representation of maps.
namespace oracle {

/// Element i of the result along `dim` is element (a * i + b) / c of the operand.
struct naive_dim {
  int dim = 0;
  std::int64_t a = 1, b = 0, c = 1;
  continuation beyond = continuation::none;
};

/// Returns the index inside the dim that index i corresponds to, by moving back step by step. Stays outside if no
/// element exists.
inline std::int64_t inside(continuation beyond, std::int64_t i, std::int64_t extent) {
  while (beyond != continuation::none && (i < 0 || i >= extent)) {
    const bool low = i < 0;
    if (beyond == continuation::round) i += low ? extent : -extent;
    else if (beyond == continuation::edge || extent == 1) i = low ? 0 : extent - 1;
    else if (beyond == continuation::reflect) i = low ? -i : 2 * extent - 2 - i;
    else i = low ? -1 - i : 2 * extent - 1 - i;
  }
  return i;
}
/// Returns the number of the repetition or mirror image of index i, or its distance from an edge. Each number has its
/// own messages.
inline std::int64_t round_of(continuation beyond, std::int64_t i, std::int64_t extent) {
  if (beyond == continuation::none) return 0;
  if (beyond == continuation::edge) return i < 0 ? i : i >= extent ? i - extent + 1 : 0;
  if (beyond != continuation::reflect || extent == 1) return floor_div(i, extent);
  const auto period = floor_div(i, extent - 1);
  return period % 2 != 0 && i % (extent - 1) == 0 ? period - 1 : period;
}

struct mapped_movement {
  mesh_shape mesh;
  extents from, to;
  sharding s;
  std::vector<naive_dim> dims;
  outside_rule outside = outside_rule::fill;
  std::uint64_t fill = 0;

  [[nodiscard]] index_map map() const {
    index_map result;
    for (const auto& d : dims) {
      result.dims.push_back(dim_map::affine(d.dim, d.a, d.b, d.c));
      result.dims[result.dims.count - 1].beyond = d.beyond;
    }
    result.outside = outside;
    result.fill = fill;
    return result;
  }
  /// Returns the flat index of the operand's element that becomes this element of the result, or -1.
  [[nodiscard]] std::int64_t source_of(std::int64_t flat) const {
    std::int64_t i[max_rank];
    for (int d = to.count - 1; d >= 0; --d) {
      i[d] = flat % to[d];
      flat /= to[d];
    }
    for (const auto& d : dims) {
      const auto n = d.a * i[d.dim] + d.b, extent = from[d.dim];
      if (n % d.c != 0 || extent == 0) return -1;
      i[d.dim] = n / d.c;
      i[d.dim] = inside(d.beyond, i[d.dim], extent);
      if (i[d.dim] < 0 || i[d.dim] >= extent) return -1;
    }
    std::int64_t result = 0;
    for (int d = 0; d < from.count; ++d) result = result * from[d] + i[d];
    return result;
  }
  [[nodiscard]] std::string text() const {
    std::string t = "mesh";
    for (const auto n : mesh.sizes) t += ' ' + std::to_string(n);
    const auto list = [&t](const char* name, const extents& shape) {
      t += name;
      for (const auto e : shape) t += ' ' + std::to_string(e);
    };
    list(", from", from);
    list(", to", to);
    for (const auto& use : s.splits) t += ", axis " + std::to_string(use.axis) + " on dim " + std::to_string(use.dim);
    for (const auto& d : dims)
      t += ", dim " + std::to_string(d.dim) + ": (" + std::to_string(d.a) + " i + " + std::to_string(d.b) + ") / " +
           std::to_string(d.c) + " beyond " + std::to_string(static_cast<int>(d.beyond));
    return t + (outside == outside_rule::keep ? ", keep" : ", fill");
  }

  /// Returns the number of wrong elements after the movement.
  template <class T, class Comm>
  [[nodiscard]] int wrong(Comm& comm) const {
    const int n = comm.local_count();
    const auto by = map();
    const movement m = numbered(mesh, movement(mesh, from, s, to, s, by));
    buffers<T> in(n, elements(local_extents(mesh, from, s)), 0x55);
    buffers<T> out(n, elements(local_extents(mesh, to, s)), 0x33);
    const buffers<T> kept(1, 1, 0x33);
    for (int i = 0; i < n; ++i)
      for_each_held(mesh, from, s, mesh.coordinates_of(comm.device(i)), [&](std::int64_t local, std::int64_t index) {
        in.pointers[static_cast<std::size_t>(i)][local] = element_at<T>(index, 0);
      });
    comm.move(mesh, m, in.const_pointers.data(), out.pointers.data());
    int wrong = out.damaged(0x33) + in.damaged(0x55);
    T constant{};
    std::memcpy(&constant, &fill, sizeof(T));
    for (int i = 0; i < n; ++i)
      for_each_held(mesh, to, s, mesh.coordinates_of(comm.device(i)), [&](std::int64_t local, std::int64_t index) {
        const auto source = source_of(index);
        const T& outside_is = outside == outside_rule::keep ? kept.pointers[0][0] : constant;
        const T want = source < 0 ? outside_is : element_at<T>(source, 0);
        wrong += std::memcmp(&out.pointers[static_cast<std::size_t>(i)][local], &want, sizeof(T)) != 0;
      });
    return wrong;
  }

  /// Counts the elements that must be exchanged, one by one. A message is a pair of devices and a repetition of the
  /// operand.
  [[nodiscard]] map_traffic counted() const {
    std::vector<int> owner(static_cast<std::size_t>(elements(from)), -1);
    const auto devices = static_cast<std::size_t>(mesh.device_count());
    std::vector<std::int64_t> sent(devices), received(devices);
    std::vector<std::set<std::vector<std::int64_t>>> messages(devices), arrivals(devices);
    axis_mask idle = 0;  // axes that split nothing: only the devices at coordinate 0 count
    for (int a = 0; a < mesh.axis_count(); ++a)
      if ((s.split_axes() & axis_bit(a)) == 0) idle |= axis_bit(a);
    const auto for_each = [&](const extents& shape, auto visit) {
      for (std::size_t d = 0; d < devices; ++d) {
        const auto at = mesh.coordinates_of(static_cast<std::int64_t>(d));
        if (group_index(mesh, idle, at) == 0)
          for_each_held(mesh, shape, s, at, [&](std::int64_t, std::int64_t index) { visit(d, index); });
      }
    };
    for_each(from, [&](std::size_t d, std::int64_t index) { owner[static_cast<std::size_t>(index)] = static_cast<int>(d); });
    map_traffic t;
    for_each(to, [&](std::size_t d, std::int64_t index) {
      const auto source = source_of(index);
      if (source < 0) return;
      const auto holder = static_cast<std::size_t>(owner[static_cast<std::size_t>(source)]);
      if (holder == d) return;
      std::vector<std::int64_t> key{static_cast<std::int64_t>(d)};
      for (const auto& along : dims) {
        auto rest = index;
        for (int k = to.count - 1; k > along.dim; --k) rest /= to[k];
        const auto i = (along.a * (rest % to[along.dim]) + along.b) / along.c;
        key.push_back(round_of(along.beyond, i, from[along.dim]));
      }
      ++sent[holder], ++received[d];
      messages[holder].insert(key);
      key[0] = static_cast<std::int64_t>(holder);
      arrivals[d].insert(key);
    });
    for (std::size_t d = 0; d < devices; ++d) {
      t.sent = std::max(t.sent, sent[d]);
      t.received = std::max(t.received, received[d]);
      t.messages = std::max(t.messages, static_cast<std::int64_t>(std::max(messages[d].size(), arrivals[d].size())));
    }
    return t;
  }
  /// Returns the difference from the library's count, or "".
  [[nodiscard]] std::string wrong_traffic() const {
    const auto want = counted(), got = traffic_of(mesh, from, to, s, map());
    if (got.sent == want.sent && got.received == want.received && got.messages == want.messages &&
        (got.axes != 0) == (want.sent > 0))
      return {};
    const auto list = [](const map_traffic& t) {
      return std::to_string(t.sent) + " sent, " + std::to_string(t.received) + " received, " + std::to_string(t.messages) +
             " messages";
    };
    return text() + ": " + list(got) + "; counted " + list(want);
  }
};

/// Returns a random movement on a mesh: up to three dims, any splits by its axes, up to three maps.
template <class Random>
mapped_movement random_mapped_movement(Random& random, const mesh_shape& mesh, std::int64_t largest = 9) {
  const auto any = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  mapped_movement m;
  m.mesh = mesh;
  const int rank = static_cast<int>(any(1, 3));
  for (int axis = 0; axis < mesh.axis_count(); ++axis)
    if (const auto dim = any(-1, rank - 1); dim >= 0) m.s.add_split(axis, static_cast<int>(dim));
  if (any(0, 1) != 0) std::reverse(m.s.splits.begin(), m.s.splits.end());
  std::stable_sort(m.s.splits.begin(), m.s.splits.end(), [](axis_use a, axis_use b) { return a.dim < b.dim; });
  for (int d = 0; d < rank; ++d) {
    m.from.push_back(any(any(0, 5) == 0 ? 0 : 1, largest));
    m.to.push_back(m.from[d]);
    if (d > 0 && any(0, 2) == 0) continue;
    m.to[d] = any(any(0, 5) == 0 ? 0 : 1, largest);
    constexpr std::int64_t scales[] = {-2, -1, -1, 1, 1, 1, 2, 3};
    m.dims.push_back({d, scales[any(0, 7)], any(-largest, 2 * largest), any(0, 1) == 0 ? 1 : any(2, 4),
                      static_cast<continuation>(any(0, 1) == 0 ? 0 : any(0, 4))});
  }
  m.outside = any(0, 3) == 0 ? outside_rule::keep : outside_rule::fill;
  m.fill = any(0, 1) == 0 ? 0 : 0x0100010101010101U;
  return m;
}

}  // namespace oracle
