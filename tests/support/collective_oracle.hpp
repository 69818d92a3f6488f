// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"

/// Checks a communicator against the definition. The value of an element is a function of its global index, and of the
/// device if it is partial. The test fills shards from this function. After the collective, every valid element of a
/// device must have the value that the definition gives. This code does not use the implementation of any collective.
namespace oracle {

using namespace gspmd::detail;
using gspmd::monoid;

inline mesh_shape mesh_of(std::initializer_list<int> sizes) {
  mesh_shape mesh;
  for (int size : sizes) mesh.sizes.push_back(size);
  return mesh;
}
inline extents shape_of(std::initializer_list<std::int64_t> sizes) {
  extents shape;
  for (auto size : sizes) shape.push_back(size);
  return shape;
}
struct use {
  int axis, dim;
};
inline sharding split(std::initializer_list<use> uses) {
  sharding s;
  for (auto u : uses) s.add_split(u.axis, u.dim);
  return s;
}

/// Returns all ways to split `rank` dims by the axes of the mesh.
inline std::vector<sharding> all_shardings(const mesh_shape& mesh, int rank) {
  std::vector<sharding> done{sharding{}};
  for (std::size_t i = 0; i < done.size(); ++i)
    for (int axis = 0; axis < mesh.axis_count(); ++axis) {
      if ((done[i].split_axes() & axis_bit(axis)) != 0) continue;
      for (int dim = 0; dim < rank; ++dim) {
        auto next = done[i];
        next.add_split(axis, dim);
        bool known = false;
        for (const auto& other : done) known = known || other == next;
        if (!known) done.push_back(next);
      }
    }
  return done;
}

template <class T>
T element_at(std::int64_t global_index, std::int64_t device) {
  const auto mixed = static_cast<std::uint64_t>(global_index * 1000003 + device * 7919 + 12345) * 0x9E3779B97F4A7C15u >> 33;
  if constexpr (std::is_same_v<T, bool>) return mixed % 3 != 0;
  else if constexpr (is_narrow_float<T>) return T(static_cast<float>(mixed % 5) - 2.0F);  // no sum and no product is rounded
  else if constexpr (std::is_floating_point_v<T>) return static_cast<T>(static_cast<double>(mixed % 4096) / 64.0 - 31.0) / T{3};
  else return static_cast<T>(static_cast<T>(mixed % 251) - T{120});
}

template <class T>
T folded(monoid kind, T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return kind == monoid::and_ || kind == monoid::min || kind == monoid::multiply ? a && b : a || b;
  else {
    using natural = typename std::conditional_t<
        is_narrow_float<T>, std::type_identity<float>,
        std::conditional_t<std::is_floating_point_v<T>, std::type_identity<T>, std::make_unsigned<T>>>::type;
    switch (kind) {
      case monoid::add: return static_cast<T>(static_cast<natural>(a) + static_cast<natural>(b));
      case monoid::multiply: return static_cast<T>(static_cast<natural>(a) * static_cast<natural>(b));
      case monoid::max: return a < b ? b : a;
      case monoid::min: return b < a ? b : a;
      default: break;
    }
    if constexpr (std::is_integral_v<T>) return static_cast<T>(kind == monoid::and_ ? a & b : a | b);
    return a;
  }
}

/// Calls visit(local_index, global_index) for all elements of the shard that are not padding.
template <class Visit>
void for_each_held(const mesh_shape& mesh, const extents& global, const sharding& s, const coordinates& at, Visit visit) {
  const auto local = local_extents(mesh, global, s);
  const auto n = elements(local);
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i, index = 0, stride = 1;
    bool held = true;
    for (int d = global.count - 1; d >= 0; --d) {
      const auto range = dim_range(mesh, global, s, d, at);
      const auto g = range.begin + rest % local[d];
      rest /= local[d];
      held = held && g < range.end;
      index += g * stride;
      stride *= global[d];
    }
    if (held) visit(i, index);
  }
}

/// The buffers of the local devices, each followed by a guard.
template <class T>
struct buffers {
  std::vector<std::unique_ptr<T[]>> owned;
  std::vector<T*> pointers;
  std::vector<const T*> const_pointers;
  std::int64_t elems;
  static constexpr std::int64_t guard = 16;

  buffers(int devices, std::int64_t n, int pattern) : elems(n) {
    for (int i = 0; i < devices; ++i) {
      const auto size = static_cast<std::size_t>(n + guard);
      owned.emplace_back(new T[size]);
      if constexpr (std::is_same_v<T, bool>)
        for (std::size_t k = 0; k < size; ++k) owned.back()[k] = pattern % 2 != 0;
      else std::memset(static_cast<void*>(owned.back().get()), pattern, size * sizeof(T));
      pointers.push_back(owned.back().get());
      const_pointers.push_back(owned.back().get());
    }
  }
  [[nodiscard]] int damaged(int pattern) const {
    const buffers<T> fresh(1, 0, pattern);
    int bad = 0;
    for (const auto* p : pointers) bad += std::memcmp(p + elems, fresh.pointers[0], guard * sizeof(T)) != 0;
    return bad;
  }
};

/// Returns the position in a movement's operand of the element with row-major number `local` in a shard.
inline std::int64_t place_in_operand(const mesh_shape& mesh, const movement& m, std::int64_t local) {
  if (m.from_order.empty()) return local;
  const auto shard = local_extents(mesh, m.from_global, m.from);
  std::vector<std::int64_t> at(static_cast<std::size_t>(shard.count));
  for (int d = shard.count - 1; d >= 0; --d) {
    at[static_cast<std::size_t>(d)] = local % shard[d];
    local /= shard[d];
  }
  std::int64_t place = 0;
  for (const int d : m.from_order) place = place * shard[d] + at[static_cast<std::size_t>(d)];
  return place;
}

/// Both return the number of wrong elements.
template <class T, class Comm>
int wrong_after_move(Comm& comm, const mesh_shape& mesh, const movement& m) {
  const int n = comm.local_count();
  buffers<T> in(n, elements(local_extents(mesh, m.from_global, m.from)), 0x55);
  buffers<T> out(n, elements(local_extents(mesh, m.to_global, m.to)), 0x33);
  for (int i = 0; i < n; ++i)
    for_each_held(mesh, m.from_global, m.from, mesh.coordinates_of(comm.device(i)), [&](std::int64_t local, std::int64_t index) {
      in.pointers[static_cast<std::size_t>(i)][place_in_operand(mesh, m, local)] = element_at<T>(index, 0);
    });
  comm.move(mesh, m, in.const_pointers.data(), out.pointers.data());
  int wrong = out.damaged(0x33) + in.damaged(0x55);
  for (int i = 0; i < n; ++i)
    for_each_held(mesh, m.to_global, m.to, mesh.coordinates_of(comm.device(i)), [&](std::int64_t local, std::int64_t index) {
      wrong += out.pointers[static_cast<std::size_t>(i)][local] != element_at<T>(index, 0);
    });
  return wrong;
}

template <class T, class Comm>
int wrong_after_reduce(Comm& comm, const mesh_shape& mesh, const reduction& r, bool in_place, bool exact = true) {
  const int n = comm.local_count();
  buffers<T> in(n, elements(local_extents(mesh, r.global, r.from)), 0x55);
  buffers<T> out(n, elements(local_extents(mesh, r.global, r.to)), 0x33);
  for (int i = 0; i < n; ++i) {
    const int device = comm.device(i);
    for_each_held(mesh, r.global, r.from, mesh.coordinates_of(device), [&](std::int64_t local, std::int64_t index) {
      in.pointers[static_cast<std::size_t>(i)][local] = element_at<T>(index, device);
    });
  }
  auto& result = in_place ? in : out;
  comm.reduce(mesh, r, in.const_pointers.data(), result.pointers.data());
  int wrong = out.damaged(0x33) + in.damaged(0x55);
  for (int i = 0; i < n; ++i) {
    const auto me = mesh.coordinates_of(comm.device(i));
    for_each_held(mesh, r.global, r.to, me, [&](std::int64_t local, std::int64_t index) {
      const auto value_of = [&](std::int64_t j) {
        return element_at<T>(index, mesh.device_at(group_member(mesh, r.axes, me, j)));
      };
      T expected = value_of(0);
      for (std::int64_t j = 1; j < mesh.size_of(r.axes); ++j) expected = folded(r.reduced_by, expected, value_of(j));
      const T got = result.pointers[static_cast<std::size_t>(i)][local];
      if constexpr (std::is_floating_point_v<T>) {
        if (!exact) {  // MPI chooses the order
          const T bound = T{1e-4F} * (T{1} + (expected < T{0} ? -expected : expected));
          wrong += !(got - expected < bound && expected - got < bound);
          return;
        }
      }
      wrong += got != expected;
    });
  }
  return wrong;
}

/// Runs several movements over the same axes, or reductions of one kind, together. The communicator holds one device.
template <class T, class Comm>
int wrong_after_moves(Comm& comm, const mesh_shape& mesh, const std::vector<movement>& all) {
  const auto me = mesh.coordinates_of(comm.device(0));
  std::vector<buffers<T>> in, out;
  std::vector<const T*> from;
  std::vector<T*> to;
  for (std::size_t k = 0; k < all.size(); ++k) {
    in.emplace_back(1, elements(local_extents(mesh, all[k].from_global, all[k].from)), 0x55);
    out.emplace_back(1, elements(local_extents(mesh, all[k].to_global, all[k].to)), 0x33);
    for_each_held(mesh, all[k].from_global, all[k].from, me, [&](std::int64_t local, std::int64_t index) {
      in[k].pointers[0][local] = element_at<T>(index, static_cast<std::int64_t>(k));
    });
    from.push_back(in[k].pointers[0]);
    to.push_back(out[k].pointers[0]);
  }
  comm.start(mesh, std::span<const movement>(all), from.data(), to.data());
  comm.finish(mesh, std::span<const movement>(all), from.data(), to.data());
  int wrong = 0;
  for (std::size_t k = 0; k < all.size(); ++k) {
    wrong += out[k].damaged(0x33) + in[k].damaged(0x55);
    for_each_held(mesh, all[k].to_global, all[k].to, me, [&](std::int64_t local, std::int64_t index) {
      wrong += out[k].pointers[0][local] != element_at<T>(index, static_cast<std::int64_t>(k));
    });
  }
  return wrong;
}
/// Compares with the results of single reductions. Uses integers, since MPI may choose the order.
template <class T, class Comm>
int wrong_after_reductions(Comm& comm, const mesh_shape& mesh, const std::vector<reduction>& all) {
  const int device = comm.device(0);
  const auto me = mesh.coordinates_of(device);
  std::vector<buffers<T>> in, out, wanted;
  std::vector<const T*> from;
  std::vector<T*> to;
  for (std::size_t k = 0; k < all.size(); ++k) {
    in.emplace_back(1, elements(local_extents(mesh, all[k].global, all[k].from)), 0x55);
    out.emplace_back(1, elements(local_extents(mesh, all[k].global, all[k].to)), 0x33);
    wanted.emplace_back(1, out[k].elems, 0x33);
    for_each_held(mesh, all[k].global, all[k].from, me, [&](std::int64_t local, std::int64_t index) {
      in[k].pointers[0][local] = element_at<T>(index + 31 * static_cast<std::int64_t>(k), device);
    });
    from.push_back(in[k].pointers[0]);
    to.push_back(out[k].pointers[0]);
    comm.reduce(mesh, all[k], in[k].const_pointers.data(), wanted[k].pointers.data());
  }
  comm.reduce_together(mesh, std::span<const reduction>(all), from.data(), to.data());
  int wrong = 0;
  for (std::size_t k = 0; k < all.size(); ++k) {
    wrong += out[k].damaged(0x33) + in[k].damaged(0x55);
    for_each_held(mesh, all[k].global, all[k].to, me,
                  [&](std::int64_t local, std::int64_t) { wrong += out[k].pointers[0][local] != wanted[k].pointers[0][local]; });
  }
  return wrong;
}

inline movement movement_between(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  return numbered(mesh, movement{global, from, to, movement_axes(mesh, global, from, to)});
}

/// The same with an operand whose dims have another order, which `order` selects.
inline movement movement_between(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                                 int order) {
  movement m{global, from, to, movement_axes(mesh, global, from, to)};
  for (int d = 0; d < global.count; ++d) {
    m.from_order.insert(order % (d + 1), static_cast<std::int8_t>(d));
    order /= d + 1;
  }
  return numbered(mesh, m);
}

/// Returns the reduction that turns `from`, partial over `axes`, into `to`. Use is_reduction to check that it is valid.
inline reduction reduction_between(const extents& global, sharding from, const sharding& to, axis_mask axes, monoid kind) {
  from.partial = axes;
  from.reduced_by = kind;
  return {global, from, to, axes, kind};
}
inline bool is_reduction(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                         axis_mask axes) {
  if ((from.split_axes() & axes) != 0) return false;
  if (!lies_inside(mesh, global, from, to)) return false;
  for (int d = 0; d < global.count; ++d)  // each dim of `to` continues the split of `from`
    if (split_change_of(mesh, from, to, d).from_axes != 0) return false;
  return true;
}

/// Runs every `stride`-th movement and reduction between all shardings of `global`, starting with number `first`.
template <class T, class Comm>
int wrong_in_all_pairs(Comm& comm, const mesh_shape& mesh, const extents& global, int stride = 1, int first = 0,
                       bool exact = true) {
  const auto shardings = all_shardings(mesh, global.count);
  const axis_mask all_axes = axis_bit(mesh.axis_count()) - 1;
  int wrong = 0, number = first;
  for (const auto& from : shardings)
    for (const auto& to : shardings) {
      if (number++ % stride == 0) {
        wrong += wrong_after_move<T>(comm, mesh, movement_between(mesh, global, from, to));
        if (global.count > 1) wrong += wrong_after_move<T>(comm, mesh, movement_between(mesh, global, from, to, number));
      }
      for (axis_mask axes = 1; axes <= all_axes; ++axes) {
        if (!is_reduction(mesh, global, from, to, axes) || number++ % stride != 0) continue;
        const auto r = reduction_between(global, from, to, axes, monoid::add);
        wrong += wrong_after_reduce<T>(comm, mesh, r, false, exact);
        if (from.splits == to.splits) wrong += wrong_after_reduce<T>(comm, mesh, r, true, exact);
      }
    }
  return wrong;
}

/// Runs the movements and reductions between all shardings of these shapes. One call carries out the largest allowed
/// number of movements or reductions together.
template <class T, class Comm>
int wrong_in_joint_pairs(Comm& comm, const mesh_shape& mesh, const std::vector<extents>& shapes, int stride = 1) {
  const axis_mask all_axes = axis_bit(mesh.axis_count()) - 1;
  int wrong = 0, number = 0;
  for (axis_mask axes = 1; axes <= all_axes; ++axes) {
    if (mesh.size_of(axes) == 1) continue;
    std::vector<movement> moves;
    std::vector<reduction> sums, scatters;
    const auto add = [&](auto& list, const auto& one, auto run) {
      list.push_back(one);
      // The lists have different lengths, up to the maximum.
      if (list.size() < static_cast<std::size_t>(2 + number % (most_moved_together - 1))) return;
      wrong += run(list);
      list.clear();
    };
    for (const auto& global : shapes)
      for (const auto& from : all_shardings(mesh, global.count))
        for (const auto& to : all_shardings(mesh, global.count)) {
          if (number++ % stride != 0) continue;
          if (const auto m = movement_between(mesh, global, from, to); m.axes == axes)
            add(moves, m, [&](const auto& list) { return wrong_after_moves<T>(comm, mesh, list); });
          if (!is_reduction(mesh, global, from, to, axes)) continue;
          const auto r = reduction_between(global, from, to, axes, monoid::add);
          add(classify(mesh, r) == collective_kind::all_reduce ? sums : scatters, r,
              [&](const auto& list) { return wrong_after_reductions<T>(comm, mesh, list); });
        }
    if (!moves.empty()) wrong += wrong_after_moves<T>(comm, mesh, moves);
    for (const auto* list : {&sums, &scatters})
      if (!list->empty()) wrong += wrong_after_reductions<T>(comm, mesh, *list);
  }
  return wrong;
}

/// Runs all monoids on one element type, with sizes around the limits of the special cases.
template <class T, class Comm>
int wrong_in_all_monoids(Comm& comm, const mesh_shape& mesh, bool exact = true) {
  const axis_mask all_axes = axis_bit(mesh.axis_count()) - 1;
  int wrong = 0;
  for (auto kind : {monoid::add, monoid::multiply, monoid::max, monoid::min, monoid::and_, monoid::or_}) {
    if (is_float_element<T> && (kind == monoid::and_ || kind == monoid::or_)) continue;
    for (std::int64_t n : {0, 1, 2, 29, 58, 59, 257, 5003}) {
      const auto shape = shape_of({n});
      const auto r = reduction_between(shape, {}, {}, all_axes, kind);
      wrong += wrong_after_reduce<T>(comm, mesh, r, false, exact);
      wrong += wrong_after_reduce<T>(comm, mesh, r, true, exact);
      wrong += wrong_after_reduce<T>(comm, mesh, reduction_between(shape, {}, split({{0, 0}}), all_axes, kind), false, exact);
      wrong += wrong_after_move<T>(comm, mesh, movement_between(mesh, shape, split({{0, 0}}), {}));
    }
  }
  return wrong;
}

}  // namespace oracle
