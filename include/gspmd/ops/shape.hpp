// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/concatenate.hpp"
#include "gspmd/detail/ops/flip.hpp"
#include "gspmd/detail/ops/pad.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/detail/ops/reshard.hpp"
#include "gspmd/detail/ops/roll.hpp"
#include "gspmd/detail/ops/shift.hpp"
#include "gspmd/detail/ops/slice.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/ops/transpose.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"
#include "gspmd/error.hpp"
#include "gspmd/ops/boundary.hpp"
#include "gspmd/ops/integers.hpp"
#include "gspmd/program/along.hpp"
#include "gspmd/program/program.hpp"
#include "gspmd/program/sharding.hpp"

namespace gspmd {
namespace detail {

constexpr extents extents_of(integers list) {
  extents e;
  for (const auto x : list) e.push_back(x);
  return e;
}
constexpr inline_vec<std::int8_t, max_rank> dims_of(integers list, int rank) {
  inline_vec<std::int8_t, max_rank> dims;
  for (const auto given : list) {
    const auto d = counted_dim(given, rank);
    dims.push_back(static_cast<std::int8_t>(d < -1 || d > 100 ? -1 : d));
  }
  return dims;
}
/// Returns true if a tensor may have `count` dims. Otherwise records an error.
constexpr bool has_room_for_dims(graph& g, std::size_t count, std::string_view op, location at) {
  if (count <= static_cast<std::size_t>(max_rank)) return true;
  g.fail(at, op, mistake::rank, text("names ") << static_cast<std::int64_t>(count) << " dims; a tensor has at most 32");
  return false;
}

}  // namespace detail

/// Stretches `x` to `shape`: dim `d` of `x` becomes dim `dims[d]`, in any order. Extents of 1 are repeated.
constexpr value broadcast_in_dim(value x, integers shape, integers dims, location at = location::current()) {
  if (!x.is_valid()) return {};
  if (!detail::has_room_for_dims(*x.graph(), shape.size(), "broadcast_in_dim", at) ||
      !detail::has_room_for_dims(*x.graph(), dims.size(), "broadcast_in_dim", at))
    return detail::made(-1, x);
  const auto to = detail::extents_of(shape);
  return detail::made(*x.graph(), detail::add_broadcast(*x.graph(), x.id(), to, detail::dims_of(dims, to.count), at), x.type(),
                      to);
}

/// Permutes the dims: dim `d` of the result is dim `permutation[d]` of `x`. No communication.
constexpr value transpose(value x, integers permutation, location at = location::current()) {
  if (!x.is_valid()) return {};
  if (!detail::has_room_for_dims(*x.graph(), permutation.size(), "transpose", at)) return detail::made(-1, x);
  return detail::made(detail::add_transpose(*x.graph(), x.id(), detail::dims_of(permutation, x.rank()), at), x);
}

/// Returns the same elements in row-major order with another shape. One extent may be -1; it is computed from the
/// others.
///
/// **Communication.** None if a split dim is divided or merged and whole parts stay on their devices. If the parts of
/// both shapes begin at different elements, there is one collective_permute over the axes of these dims. It sends only
/// the elements that a device lacks. For example, [3,2] to [6] on 2 devices sends one element. If no factor of the dim
/// can have the split of the dim, the operand is gathered, which requires allow_replication. An annotation of the
/// result avoids the gather.
/// **Example.**
///     reshape(x, {8, -1})
/// **Source.** GSPMD, section 4.3, Fig. 5c.
constexpr value reshape(value x, integers shape, location at = location::current()) {
  if (!x.is_valid()) return {};
  if (!detail::has_room_for_dims(*x.graph(), shape.size(), "reshape", at)) return detail::made(-1, x);
  const auto to = detail::inferred_shape(x.shape(), detail::extents_of(shape));
  return detail::made(*x.graph(), detail::add_reshape(*x.graph(), x.id(), to, at), x.type(), to);
}

/// Shifts `x`: element i of the result along `dim` is element i + `offset` of `x`, or zero (false) if `x` has no such
/// element. This is Fortran's `eoshift(x, offset, dim=)` and StableHLO's `pad` with low = -offset and high = offset.
/// The sign is the opposite of `roll`, NumPy, SciPy and xarray. The shape does not change. Every offset is valid.
/// Stencils and convolutions are sums of shifted tensors. The gradient is the shift by -offset.
///
/// **Communication.** If `dim` is split, neighbouring devices send the elements outside of a shard by
/// collective_permute (halo exchange). With shards of s indices this is min(|offset|, s) indices in one message. It is
/// two messages if |offset| is larger than s and not a multiple of s. None along other dims.
/// **Example.**
///     auto blurred = shift(x, -1, along(0)) + x + shift(x, 1, along(0));
/// **Source.** GSPMD, section 4.3.
constexpr value shift(value x, std::int64_t offset, along dim, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::made(detail::add_shift(*x.graph(), x.id(), detail::counted_dim(dim, x.rank()), offset, at), x);
}

/// The same with a boundary: `outside` defines the values outside of the ends of `x`, as a number or as elements of
/// `x`. The gradient of an element of `x` is the sum of the gradients of all elements that were copied from it: up to
/// r terms for an offset of r.
///
/// **Communication.** The halo is that of shift without a boundary. Only the devices at an end compute the values
/// outside of that end. With `wrap` these values are sent from the device at the other end.
/// **Errors.** At compile time: a dim that does not exist, a number that the element type does not hold, `values`,
/// which only stencil takes.
/// **Example.**
///     auto slope = shift(x, 1, along(0), boundary::edge()) - x;
constexpr value shift(value x, std::int64_t offset, along dim, const boundary& outside, location at = location::current()) {
  if (!x.is_valid()) return {};
  auto& g = *x.graph();
  if (outside.has_values())
    return detail::made(g.fail(at, "shift", detail::mistake::other, "takes no tensor as the values beyond an end; use stencil"),
                        x);
  return detail::made(
      detail::add_shift(g, x.id(), detail::counted_dim(dim, x.rank()), offset, at, outside.beyond(), outside.number()), x);
}

namespace detail {

/// Returns the list, or `number` for every dim if the list is empty.
constexpr vec<std::int64_t> filled(integers list, int rank, std::int64_t number) {
  vec<std::int64_t> result;
  for (const auto n : list) result.push_back(n);
  if (list.size() == 0)
    for (int d = 0; d < rank; ++d) result.push_back(number);
  return result;
}

}  // namespace detail

/// Adds `low[d]` elements before and `high[d]` elements after `x` along every dim d, and `interior[d]` elements
/// between any two neighbours. All these elements equal `number`. Negative numbers in low and high remove elements
/// (StableHLO's `pad`). Extent n becomes low + n + (n-1) * interior + high. The default of `interior` is 0. The
/// gradient is a slice.
///
/// If all users of a pad are slices, the pad and each slice are one movement (GSPMD 4.6). Elements that the slice
/// returns to their device are not sent.
///
/// **Communication.** If a padded dim is split, its shards are those of the result. Devices send the elements that
/// belong to another part of the result than of `x` by collective_permute. A device sends at most the elements of its
/// larger shard, and whole shards only if the extents differ much. None along other dims, and never a gather.
/// **Errors.** At compile time: a list without one number for each dim; a negative interior; a padding that removes
/// more elements than exist; a number that the element type does not hold.
/// **Example.**
///     auto framed = pad(x, {1, 1}, {1, 1});            // [8,8] -> [10,10]
///     auto spread = pad(x, {0, 0}, {0, 0}, 0, {1, 0});  // [8,8] -> [15,8]: a row of zeros between any two
constexpr value pad(value x, integers low, integers high, detail::written_number number = 0, integers interior = {},
                    location at = location::current()) {
  if (!x.is_valid()) return {};
  const auto between = detail::filled(interior, x.rank(), 0);
  return detail::made(detail::add_pad(*x.graph(), x.id(), low, high, integers(between.data(), between.size()), number, at), x);
}

/// Returns the elements of `x` with the indices start[d], start[d] + stride[d], ..., below limit[d], along every dim
/// d. This is NumPy's `x[start:limit:stride]` and StableHLO's `slice`. The default of `stride` is 1. The gradient is a
/// padding with zeros.
///
/// **Communication.** If a sliced dim is split, its shards are those of the result. Devices send the elements that
/// belong to another part of the result than of `x` by collective_permute. A device sends at most the elements of its
/// shard. None along other dims, and never a gather.
/// **Errors.** At compile time: a list without one number for each dim, a stride below 1, a range that is not inside
/// of the dim.
/// **Example.**
///     auto inner = slice(x, {1, 1}, {7, 7});           // [8,8] -> [6,6]
///     auto even = slice(x, {0, 0}, {8, 8}, {2, 1});     // [8,8] -> [4,8]: every other row
constexpr value slice(value x, integers start, integers limit, integers stride = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  const auto steps = detail::filled(stride, x.rank(), 1);
  return detail::made(detail::add_slice(*x.graph(), x.id(), start, limit, integers(steps.data(), steps.size()), at), x);
}

/// Reverses the order of the elements along `dims`: element i of a dim of extent n is element n - 1 - i of `x`. The
/// gradient is the reverse of the same dims.
///
/// **Communication.** If a reversed dim is split, devices swap their shards by collective_permute, the first with the
/// last and so on. The shard in the middle stays. None along other dims.
/// **Errors.** At compile time: a dim that does not exist or that occurs twice.
/// **Example.**
///     auto backwards = flip(x, {0});
constexpr value flip(value x, integers dims, location at = location::current()) {
  if (!x.is_valid()) return {};
  detail::vec<int> counted;
  for (const auto d : dims) counted.push_back(detail::counted_dim(d, x.rank()));
  return detail::made(detail::add_flip(*x.graph(), x.id(), detail::span<const int>(counted.data(), counted.size()), at), x);
}

/// Rotates `x` by `by` elements along `dim`: element i of the result is element i - by of `x`, modulo the extent. This
/// is NumPy's `roll`. The sign is the opposite of `shift`. Every number is valid, also a negative one. The gradient is
/// the roll by -by.
///
/// **Communication.** If `dim` is split, a device receives the elements outside of its shard by collective_permute,
/// also around the ends of the tensor. With shards of s indices this is min(|by|, s) indices. None along other dims.
/// **Errors.** At compile time: a dim that does not exist.
/// **Example.**
///     auto east = roll(x, 1, along(-1));
constexpr value roll(value x, std::int64_t by, along dim, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::made(detail::add_roll(*x.graph(), x.id(), by, detail::counted_dim(dim, x.rank()), at), x);
}

/// Joins any number of tensors along `dim`, as NumPy's and StableHLO's `concatenate`. They have one element type and
/// the same extents along the other dims. Up to 8 tensors are one operator. More tensors are joined in groups of 8,
/// and the groups again, so each element is copied once per level. The gradients are slices.
///
/// **Communication.** If `dim` is split, the shards are those of the result. Each tensor is one collective_permute:
/// devices send the elements that belong to another part of the result than of the tensor. None along other dims, and
/// never a gather.
/// **Errors.** At compile time: no tensors, a dim that does not exist, different extents along other dims, different
/// element types.
/// **Example.**
///     auto both = concatenate({x, y}, 0);              // [8,4], [3,4] -> [11,4]
constexpr value concatenate(detail::span<const value> tensors, int dim, location at = location::current()) {
  value first;
  for (const auto& x : tensors) {
    if (!x.is_valid()) return {};
    if (first.graph() == nullptr) first = x;
  }
  if (!first.is_valid()) throw error("concatenate joins no tensors; name at least one");
  detail::vec<int> ids;
  for (const auto& x : tensors) ids.push_back(x.graph() == first.graph() ? x.id() : -1);
  return detail::made(detail::add_concatenate(*first.graph(), detail::span<const int>(ids.data(), ids.size()),
                                              detail::counted_dim(dim, first.rank()), at),
                      first);
}
constexpr value concatenate(std::initializer_list<value> tensors, int dim, location at = location::current()) {
  return concatenate(detail::span<const value>(tensors.begin(), tensors.size()), dim, at);
}

/// Returns a tensor with all elements equal to `number`, in the program of `like`. Its elements have type T, by
/// default the type of the number.
template <class T = void, class Number>
constexpr value constant(value like, integers shape, Number number, location at = location::current()) {
  using element = std::conditional_t<std::is_void_v<T>, Number, T>;
  if (!like.is_valid()) return {};
  if (!detail::has_room_for_dims(*like.graph(), shape.size(), "constant", at)) return detail::made(-1, like);
  const auto e = detail::extents_of(shape);
  return detail::made(*like.graph(), detail::add_number(*like.graph(), number, detail::dtype_of<element>(), e, "constant", at),
                      detail::dtype_of<element>(), e);
}

/// Returns zeros with the type and shape of `x`; the result does not depend on the elements of `x`. A loop that only
/// adds to such zeros reduces the sum once, after the loop (see fori_loop). `x * 0.0` does not have this property,
/// because it is not 0 if x is infinite.
///
/// **Example.**
///     auto gradient = fori_loop(4, [&](value i, value g) { return g + gradient_of(i); }, zeros_like(w));
constexpr value zeros_like(value x, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::made(detail::add_constant(*x.graph(), x.type(), detail::extents(x.shape()), 0, 0, at), x);
}

/// Returns a tensor whose elements are their global index along `dim`, in the program of `like`. No communication.
template <class T>
constexpr value iota(value like, integers shape, int dim, location at = location::current()) {
  if (!like.is_valid()) return {};
  if (!detail::has_room_for_dims(*like.graph(), shape.size(), "iota", at)) return detail::made(-1, like);
  const auto e = detail::extents_of(shape);
  return detail::made(*like.graph(),
                      detail::add_iota(*like.graph(), detail::dtype_of<T>(), e, detail::counted_dim(dim, e.count), at),
                      detail::dtype_of<T>(), e);
}

namespace detail {

constexpr value annotate(value x, const resolved_sharding& r, std::string_view op, location at) {
  if (!x.is_valid()) return {};
  if (!r.problem.empty()) return made(x.graph()->fail(at, op, r.broken, r.problem), x);
  return {x.graph(), add_reshard(*x.graph(), x.id(), r.value, at)};
}

}  // namespace detail

/// Returns `x` with the sharding in the second argument: `reshard(x, split<"data", _>{})`. Use it for shardings that
/// completion does not choose. The gradient has the same reshard (GSPMD 3.6).
template <dim_spec... Dims>
constexpr value reshard(value x, split<Dims...>, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::annotate(x, detail::resolve(*x.graph()->mesh, split<Dims...>::specs(), split<Dims...>::rank, x.rank()),
                          "reshard", at);
}

/// The same for the other forms of a sharding: `placements<...>`, `xla_split<...>`, and `on<mesh, ...>`, which selects
/// one of the meshes of the program.
///
/// **Example.**
///     auto inside = reshard(x, on<expert, split<"ep", _>>{});
template <class Sharding>
  requires requires(const detail::mesh_info& mesh) { Sharding::resolve(mesh, 0); }
constexpr value reshard(value x, Sharding, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::annotate(x, Sharding::resolve(*x.graph()->mesh, x.rank()), "reshard", at);
}

/// Returns `x` and gives it the sharding of `other`: completion copies a sharding that it finds for either tensor to
/// the other one (GSPMD 3.5). Both have the same shape; `x` does not have to depend on `other`. The gradient passes
/// through to `x`.
///
/// **Example.**
///     velocity = shard_alike(velocity, w);
constexpr value shard_alike(value x, value other, location at = location::current()) {
  if (!x.is_valid() || !other.is_valid()) return {};
  return detail::made(detail::add_shard_alike(*x.graph(), x.id(), other.id(), at), x);
}

/// Returns `x`, sharded by position (GSPMD 3.1): mesh axis `dims_mapping[d]` splits dim `d`, and -1 splits it by no
/// axis. If the program has several views of the devices, the axes are those of the first view.
constexpr value mesh_split(value x, std::initializer_list<int> dims_mapping, location at = location::current()) {
  if (!x.is_valid()) return {};
  const auto& mesh = *x.graph()->mesh;
  const auto axes = mesh.own_axes();
  detail::resolved_sharding r;
  if (static_cast<int>(dims_mapping.size()) != x.rank())
    r.refuse(detail::mistake::annotation_rank)
        << "dims_mapping has " << static_cast<int>(dims_mapping.size()) << " entries and the tensor has " << x.rank()
        << " dims; write one for each dim, -1 for a dim that is not split";
  detail::axis_mask used = 0;
  int d = 0;
  for (const int axis : dims_mapping) {
    if (!r.problem.empty()) break;
    if (axis < -1 || axis >= axes.count)
      r.refuse(detail::mistake::unknown_axis)
          << "dims_mapping names axis " << axis << " and the mesh has " << axes.count << " axes; they count from 0";
    else if (axis >= 0 && (used & detail::axis_bit(axis)) != 0)
      r.refuse(detail::mistake::axis_used_twice)
          << "axis `" << mesh.base_name(axes[axis][0]) << "` is used twice; a mesh axis splits one dim at most";
    else if (axis >= 0) {
      used |= detail::axis_bit(axis);
      for (const auto a : axes[axis]) r.value.layout.add_split(a, d);
    }
    ++d;
  }
  return detail::annotate(x, r, "mesh_split", at);
}

/// Returns `x`, replicated on all devices (GShard 3.2).
constexpr value replicate(value x, location at = location::current()) { return detail::annotate(x, {}, "replicate", at); }

/// Returns `x`, split by a device assignment of this shape (GShard 3.2): dim `d` has `parts[d]` parts. Mesh axes are
/// used in order, and the remaining axes replicate.
constexpr value shard(value x, std::initializer_list<int> parts, location at = location::current()) {
  if (!x.is_valid()) return {};
  const auto& mesh = *x.graph()->mesh;
  detail::resolved_sharding r;
  if (static_cast<int>(parts.size()) != x.rank())
    r.refuse(detail::mistake::annotation_rank) << "the device assignment has rank " << static_cast<int>(parts.size())
                                               << " and the tensor " << x.rank() << "; write the number of parts of each dim";
  int axis = 0;
  int d = 0;
  for (const int wanted : parts) {
    std::int64_t n = 1;
    while (n < wanted && axis < mesh.shape.axis_count()) {
      n *= mesh.shape.sizes[axis];
      if (mesh.shape.sizes[axis] > 1) r.value.layout.add_split(axis, d);
      ++axis;
    }
    if (n != wanted && r.problem.empty())
      r.refuse(detail::mistake::parts) << "no run of mesh axes has " << wanted << " devices for dim " << d
                                       << "; the mesh has the axes " << detail::names_text(mesh);
    ++d;
  }
  return detail::annotate(x, r, "shard", at);
}

/// Returns `x` with one dim split into `n` parts (GShard 3.2).
///
/// **Example.**
///     auto y = split_dim(x, 4, along(0));
constexpr value split_dim(value x, int n, along split, location at = location::current()) {
  if (!x.is_valid()) return {};
  const int dim = detail::counted_dim(split, x.rank());
  const auto& mesh = *x.graph()->mesh;
  detail::resolved_sharding r;
  for (int begin = 0; begin < mesh.shape.axis_count() && r.value.layout.splits.empty(); ++begin) {
    std::int64_t product = 1;
    for (int end = begin; end < mesh.shape.axis_count() && product < n; ++end) {
      product *= mesh.shape.sizes[end];
      if (product == n)
        for (int a = begin; a <= end; ++a) r.value.layout.add_split(a, dim);
    }
  }
  if (dim < 0 || dim >= x.rank())
    r.refuse(detail::mistake::dim) << "dim " << dim << " is not a dim of " << detail::shape_text(x.shape())
                                   << "; dims count from 0";
  else if (n != 1 && r.value.layout.splits.empty())
    r.refuse(detail::mistake::parts) << "no run of mesh axes has " << n << " devices; the mesh has the axes "
                                     << detail::names_text(mesh);
  return detail::annotate(x, r, "split_dim", at);
}

/// Forbids communication of the operands of the operator that made `x`. If an operand would have to be resharded or
/// reduced, the program is refused. The error shows the operand, both shardings and the remedy.
constexpr value forbid_reshard(value x) {
  if (x.is_valid()) x.graph()->maker_of(x.id()).forbid_reshard = true;
  return x;
}

/// Returns `x` and forbids its users to gather it. A user works with the split of `x`, or with another split by the
/// same axes. If an operator can do neither, the program is refused with operand, split and axis. Your own reshards
/// and the annotations of outputs remain allowed. The gradient of `x` is kept split, too. No communication by itself.
///
/// **Example.**
///     auto y = einsum<"bd,df->bf">(x, keep_split(w));   // w is not gathered, whatever the sizes of x and w
constexpr value keep_split(value x) {
  if (x.is_valid()) x.graph()->nodes[static_cast<std::size_t>(x.id())].keep_split = true;
  return x;
}

/// Returns `x` and leaves it partial, if its operator makes it partial, until a user requires the sum. Operators that
/// are linear in `x` pass it on, even if the sum is larger then or is computed several times. By default the planner
/// reduces the value before an operator if the result of the operator is larger. It also does so if the sizes are
/// equal and several operators read the value. keep_partial is never refused. A user that requires the sum reduces it:
/// an operator that is not linear, an output, a reshard, or a loop that reads `x` from outside. The gradient of `x` is
/// kept partial, too.
///
/// **Example.**
///     auto y = keep_partial(einsum<"bd,df->bf">(x, w)) * 0.5;   // d split: one all_reduce, of y or of a later result
constexpr value keep_partial(value x) {
  if (x.is_valid()) x.graph()->nodes[static_cast<std::size_t>(x.id())].keep_partial = true;
  return x;
}

/// Allows the operator that made `x` to gather operands whose split it cannot keep, along the axes that it cannot use.
/// Without it the program is refused with the operand and both shardings. The gradient has the same permission.
///
/// **Example.**
///     auto y = allow_replication(reshape(x, {3, 2}));   // x is [2,3] with split rows: no device holds a part of y
constexpr value allow_replication(value x) {
  if (x.is_valid()) x.graph()->maker_of(x.id()).allow_replication = true;
  return x;
}

}  // namespace gspmd
