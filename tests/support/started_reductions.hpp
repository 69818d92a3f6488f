// SPDX-License-Identifier: Apache-2.0
// Reductions that are started and finished, on a communicator that holds one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "collective_oracle.hpp"

namespace oracle {

/// Executes each reduction by start and finish.
template <class Comm>
struct by_starting {
  Comm& comm;

  [[nodiscard]] int device_count() const { return comm.device_count(); }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int i) const { return comm.device(i); }
  template <class T>
  void move(const mesh_shape& mesh, const movement& m, const T* const* in, T* const* out) {
    comm.move(mesh, m, in, out);
  }
  template <class T>
  void reduce(const mesh_shape& mesh, const reduction& r, const T* const* in, T* const* out) {
    comm.start(mesh, span<const reduction>(&r, 1), in, out);
    comm.finish(mesh, span<const reduction>(&r, 1), in, out);
  }
};

/// Buffers of a test. They are allocated consecutively from `memory` while there is room, otherwise on the heap.
class started_memory {
 public:
  started_memory(std::byte* memory, std::size_t room) : next_(memory), end_(memory + room) {}
  template <class T>
  T* take(std::int64_t elems) {
    const auto bytes = (static_cast<std::size_t>(elems) * sizeof(T) + 63) / 64 * 64;
    if (static_cast<std::size_t>(end_ - next_) >= bytes) return reinterpret_cast<T*>(std::exchange(next_, next_ + bytes));
    own_.emplace_back(bytes + 64);
    return reinterpret_cast<T*>(own_.back().data());
  }

 private:
  std::byte *next_, *end_;
  std::vector<std::vector<std::byte>> own_;
};

/// Starts several reductions of random kinds, axes and sizes, also uneven and in place. Executes other reductions and
/// movements before the started ones are finished, in any order. All devices draw the same random numbers. Returns the
/// number of wrong elements: sums must be equal to the bit to sums in the order of the members.
template <class T, class Comm>
int wrong_of_several(Comm& comm, const mesh_shape& mesh, unsigned seed, started_memory memory) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % static_cast<unsigned>(n)); };
  const auto me = mesh.coordinates_of(comm.device(0));
  struct one {
    reduction r;
    const T* in;
    T* out;
    std::int64_t salt;
    bool is_finished = false;
  };
  std::vector<one> all(2 + below(4));
  const auto all_axes = static_cast<std::size_t>(axis_bit(mesh.axis_count()) - 1);
  constexpr monoid kinds[] = {monoid::add, monoid::add, monoid::max, monoid::min, monoid::multiply};
  int wrong = 0;
  for (auto& o : all) {
    for (;;) {
      const auto shape = below(2) == 0
                             ? shape_of({static_cast<std::int64_t>(below(9)), static_cast<std::int64_t>(1 + below(7))})
                             : shape_of({static_cast<std::int64_t>(1 + below(90)), static_cast<std::int64_t>(40 + below(60))});
      const auto shardings = all_shardings(mesh, 2);
      const auto &from = shardings[below(shardings.size())], &to = shardings[below(shardings.size())];
      const auto axes = static_cast<axis_mask>(1 + below(all_axes));
      if (!is_reduction(mesh, shape, from, to, axes)) continue;
      o.r = reduction_between(shape, from, to, axes, kinds[below(5)]);
      break;
    }
    const auto elems = elements(local_extents(mesh, o.r.global, o.r.from));
    T* const in = memory.take<T>(elems);
    o.in = in;
    o.salt = static_cast<std::int64_t>(below(1000));
    for_each_held(mesh, o.r.global, o.r.from, me,
                  [&](std::int64_t local, std::int64_t index) { in[local] = element_at<T>(index + o.salt, comm.device(0)); });
    const bool in_place = o.r.from.splits == o.r.to.splits && below(2) == 0;
    o.out = in_place ? in : memory.take<T>(elements(local_extents(mesh, o.r.global, o.r.to)));
  }
  const auto check = [&](const one& o) {
    for_each_held(mesh, o.r.global, o.r.to, me, [&](std::int64_t local, std::int64_t index) {
      const auto value_of = [&](std::int64_t j) {
        return element_at<T>(index + o.salt, mesh.device_at(group_member(mesh, o.r.axes, me, j)));
      };
      T expected = value_of(0);
      for (std::int64_t j = 1; j < mesh.size_of(o.r.axes); ++j) expected = folded(o.r.reduced_by, expected, value_of(j));
      wrong += o.out[local] == expected ? 0 : 1;
    });
  };
  const auto something_else = [&] {
    const auto kind = below(4);
    const auto axes = static_cast<axis_mask>(1 + below(all_axes));
    if (kind == 0) {
      const auto r = reduction_between(shape_of({static_cast<std::int64_t>(1 + below(3000))}), {}, {}, axes, monoid::add);
      wrong += wrong_after_reduce<std::int64_t>(comm, mesh, r, below(2) == 0);
    } else if (kind == 1) {
      wrong += wrong_after_move<std::int32_t>(comm, mesh, movement_between(mesh, shape_of({37}), split({{0, 0}}), {}));
    }
  };
  for (auto& o : all) {
    comm.start(mesh, span<const reduction>(&o.r, 1), &o.in, &o.out);
    something_else();
  }
  for (std::size_t left = all.size(); left > 0; --left) {
    auto next = below(left);
    for (auto& o : all) {
      if (o.is_finished || next-- != 0) continue;
      comm.finish(mesh, span<const reduction>(&o.r, 1), &o.in, &o.out);
      o.is_finished = true;
      check(o);
      break;
    }
    something_else();
  }
  return wrong;
}

}  // namespace oracle
