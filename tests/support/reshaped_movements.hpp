// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "collective_oracle.hpp"

/// Movements that reshape, compared with the definition: elements have equal row-major numbers. This code does not use
/// digits.
namespace oracle {

struct reshaped_movement {
  mesh_shape mesh;
  extents from, to;
  sharding s, t;

  [[nodiscard]] bool is_possible() const { return reshape_exchange(mesh, from, s, to, t).is_possible(); }
  [[nodiscard]] std::string text() const {
    std::string result = "mesh";
    for (const auto n : mesh.sizes) result += ' ' + std::to_string(n);
    for (const bool is_result : {false, true}) {
      result += is_result ? ", to" : ", from";
      for (const auto e : is_result ? to : from) result += ' ' + std::to_string(e);
      for (const auto& use : (is_result ? t : s).splits)
        result += ", axis " + std::to_string(use.axis) + " on dim " + std::to_string(use.dim);
    }
    return result;
  }

  /// Returns the number of wrong elements after the movement.
  template <class T, class Comm>
  [[nodiscard]] int wrong(Comm& comm) const {
    const int n = comm.local_count();
    index_map map;
    map.reshapes = true;
    const movement m = numbered(mesh, movement(mesh, from, s, to, t, map));
    buffers<T> in(n, elements(local_extents(mesh, from, s)), 0x55);
    buffers<T> out(n, elements(local_extents(mesh, to, t)), 0x33);
    for (int i = 0; i < n; ++i)
      for_each_held(mesh, from, s, mesh.coordinates_of(comm.device(i)), [&](std::int64_t local, std::int64_t index) {
        in.pointers[static_cast<std::size_t>(i)][local] = element_at<T>(index, 0);
      });
    comm.move(mesh, m, in.const_pointers.data(), out.pointers.data());
    int wrong = out.damaged(0x33) + in.damaged(0x55);
    for (int i = 0; i < n; ++i)
      for_each_held(mesh, to, t, mesh.coordinates_of(comm.device(i)), [&](std::int64_t local, std::int64_t index) {
        const T want = element_at<T>(index, 0);
        wrong += std::memcmp(&out.pointers[static_cast<std::size_t>(i)][local], &want, sizeof(T)) != 0;
      });
    return wrong;
  }

  /// Compares the library's counts with a count by elements. A device receives the elements that it lacks, and sends
  /// the elements that other devices of its group lack. If several devices hold or need a value, the library may count
  /// more sent elements.
  [[nodiscard]] std::string wrong_traffic() const {
    const auto got = reshape_exchange(mesh, from, s, to, t).traffic();
    const auto devices = static_cast<std::size_t>(mesh.device_count());
    const auto count = static_cast<std::size_t>(elements(from));
    std::vector<std::vector<bool>> has(devices, std::vector<bool>(count)), needs = has;
    for (std::size_t d = 0; d < devices; ++d) {
      const auto at = mesh.coordinates_of(static_cast<std::int64_t>(d));
      for_each_held(mesh, from, s, at, [&](std::int64_t, std::int64_t i) { has[d][static_cast<std::size_t>(i)] = true; });
      for_each_held(mesh, to, t, at, [&](std::int64_t, std::int64_t i) { needs[d][static_cast<std::size_t>(i)] = true; });
    }
    std::int64_t received = 0, sent = 0, peers = 0;
    for (std::size_t d = 0; d < devices; ++d) {
      const auto at = mesh.coordinates_of(static_cast<std::int64_t>(d));
      std::int64_t gets = 0, gives = 0, sources = 0;
      for (std::size_t i = 0; i < count; ++i) gets += needs[d][i] && !has[d][i] ? 1 : 0;
      for (std::int64_t k = 0; k < mesh.size_of(got.axes); ++k) {
        const auto peer = static_cast<std::size_t>(mesh.device_at(group_member(mesh, got.axes, at, k)));
        if (peer == d) continue;
        std::int64_t from_peer = 0;
        for (std::size_t i = 0; i < count; ++i) {
          gives += has[d][i] && needs[peer][i] && !has[peer][i] ? 1 : 0;
          from_peer += has[peer][i] && needs[d][i] && !has[d][i] ? 1 : 0;
        }
        sources += from_peer > 0 ? 1 : 0;
      }
      received = std::max(received, gets);
      sent = std::max(sent, gives);
      peers = std::max(peers, sources);
    }
    const bool loses_axis = (s.split_axes() & ~t.split_axes()) != 0, is_exact = s.split_axes() == t.split_axes();
    if (got.received != received || (got.axes == 0) != (received == 0)) return text() + ": receives " + std::to_string(received);
    if (!loses_axis && (got.sent < sent || (is_exact && got.sent != sent))) return text() + ": sends " + std::to_string(sent);
    if (got.messages < peers) return text() + ": from " + std::to_string(peers);
    return {};
  }
};

/// Returns all shapes with this number of elements, without extents of 1. If `with_units`, also with one extent of 1 at
/// any position.
inline std::vector<extents> all_shapes(std::int64_t count, bool with_units) {
  std::vector<extents> done, open{{}};
  while (!open.empty()) {
    const auto shape = open.back();
    open.pop_back();
    const auto left = count / elements(shape);
    if (left == 1 && (shape.count > 0 || count == 1)) {
      if (count > 1) done.push_back(shape);
      for (int at = 0; at <= shape.count && (with_units || count == 1); ++at) {
        auto longer = shape;
        longer.insert(at, 1);
        done.push_back(longer);
      }
    }
    for (std::int64_t e = 2; e <= left; ++e) {
      if (left % e != 0) continue;
      auto longer = shape;
      longer.push_back(e);
      open.push_back(longer);
    }
  }
  return done;
}

/// Calls `visit` with every reshape of `count` elements, between all shardings of the source and the result.
template <class Visit>
void for_each_reshape(const mesh_shape& mesh, std::int64_t count, bool with_units, Visit visit) {
  const auto shapes = all_shapes(count, with_units);
  for (const auto& from : shapes)
    for (const auto& to : shapes)
      for (const auto& s : all_shardings(mesh, from.count))
        for (const auto& t : all_shardings(mesh, to.count)) visit(reshaped_movement{mesh, from, to, s, t});
}

inline reshaped_movement random_reshape(std::mt19937_64& random, const mesh_shape& mesh, std::int64_t most) {
  for (;;) {
    const auto shapes = all_shapes(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)) + 1, true);
    reshaped_movement m;
    m.mesh = mesh;
    m.from = shapes[random() % shapes.size()];
    m.to = shapes[random() % shapes.size()];
    for (auto* side : {&m.s, &m.t})
      for (int a = 0; a < mesh.axis_count(); ++a) {
        const auto rank = static_cast<std::uint64_t>(side == &m.s ? m.from.count : m.to.count);
        if (random() % 4 != 0) side->add_split(a, static_cast<int>(random() % rank));
      }
    if (m.is_possible()) return m;
  }
}

}  // namespace oracle
