// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/concatenate.hpp"
#include "gspmd/detail/ops/pad.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/detail/ops/reshard.hpp"
#include "gspmd/detail/ops/reverse.hpp"
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
#include "gspmd/program.hpp"
#include "gspmd/sharding.hpp"

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
/// Whether so many dims are not too many; records the mistake if they are.
constexpr bool has_room_for_dims(graph& g, std::size_t count, std::string_view op, location at) {
  if (count <= static_cast<std::size_t>(max_rank)) return true;
  g.fail(at, op, mistake::rank, text("names ") << static_cast<std::int64_t>(count) << " dims; a tensor has at most 32");
  return false;
}

}  // namespace detail

/// The tensor stretched to `shape`: dim `d` of `x` becomes dim `dims[d]`, in any order; an extent of 1 is repeated.
constexpr value broadcast_in_dim(value x, integers shape, integers dims, location at = location::current()) {
  if (!x.is_valid()) return {};
  if (!detail::has_room_for_dims(*x.graph(), shape.size(), "broadcast_in_dim", at) ||
      !detail::has_room_for_dims(*x.graph(), dims.size(), "broadcast_in_dim", at))
    return detail::made(-1, x);
  const auto to = detail::extents_of(shape);
  return detail::made(*x.graph(), detail::add_broadcast(*x.graph(), x.id(), to, detail::dims_of(dims, to.count), at), x.type(),
                      to);
}

/// Dim `d` of the result is dim `permutation[d]` of `x`. No communication.
constexpr value transpose(value x, integers permutation, location at = location::current()) {
  if (!x.is_valid()) return {};
  if (!detail::has_room_for_dims(*x.graph(), permutation.size(), "transpose", at)) return detail::made(-1, x);
  return detail::made(detail::add_transpose(*x.graph(), x.id(), detail::dims_of(permutation, x.rank()), at), x);
}

/// The same elements in row-major order under another shape. One extent may be -1: it follows from the others. Nothing is sent where a
/// split dim is divided or merged and whole parts stay on their devices. Where the parts of both shapes do not begin alike, one
/// collective_permute over the axes of these dims brings what a device lacks, and nothing else (GSPMD 4.3, Fig. 5c): [3,2] to [6] on 2
/// devices sends one element. Where no factor of the dim can carry its split the operand is gathered, which allow_replication allows;
/// a sharding that is written for the result spares that.
///
///     reshape(x, {8, -1})
constexpr value reshape(value x, integers shape, location at = location::current()) {
  if (!x.is_valid()) return {};
  if (!detail::has_room_for_dims(*x.graph(), shape.size(), "reshape", at)) return detail::made(-1, x);
  const auto to = detail::inferred_shape(x.shape(), detail::extents_of(shape));
  return detail::made(*x.graph(), detail::add_reshape(*x.graph(), x.id(), to, at), x.type(), to);
}

/// Element i of the result along `dim` is element i + `offset` of `x`, and zero (false) where `x` has none: Fortran's
/// `eoshift(x, offset, dim=)`, StableHLO's `pad` with low = -offset and high = offset. NumPy, SciPy and xarray count the other way.
/// The shape stays; any offset is right. Stencils and convolutions are sums over shifted tensors.
///
/// Where `dim` is split, a device gets the elements that lie across the ends of its shard from the devices next to it by
/// collective_permute (halo exchange, GSPMD 4.3): with shards of s indices min(|offset|, s) of them, in one message, or in two
/// if |offset| is larger than s and no multiple of it. No communication along other dims. Its gradient is the shift by -offset.
///
///     auto blurred = shift(x, 0, -1) + x + shift(x, 0, 1);
constexpr value shift(value x, int dim, std::int64_t offset, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::made(detail::add_shift(*x.graph(), x.id(), detail::counted_dim(dim, x.rank()), offset, at), x);
}

/// The same where `x` goes on beyond its ends as `outside` says, with a number or with elements of its own. The halo is the same;
/// what lies beyond an end is found where the end is, and round the end (`wrap`) it comes from the device at the other one. Its
/// gradient adds up, for each element of `x`, what the result is at all places that took it, for an offset of r in r terms.
///
/// Errors, at compile time: a dim that is not there, a number that the element type does not hold, `values`, which stencil takes.
///
///     auto slope = shift(x, 0, 1, boundary::edge()) - x;
constexpr value shift(value x, int dim, std::int64_t offset, const boundary& outside, location at = location::current()) {
  if (!x.is_valid()) return {};
  auto& g = *x.graph();
  if (outside.has_values())
    return detail::made(g.fail(at, "shift", detail::mistake::other, "takes no tensor as what lies beyond an end; stencil does"),
                        x);
  return detail::made(
      detail::add_shift(g, x.id(), detail::counted_dim(dim, x.rank()), offset, at, outside.beyond(), outside.number()), x);
}

namespace detail {

/// The list, or `number` for every dim where it is empty.
constexpr vec<std::int64_t> filled(integers list, int rank, std::int64_t number) {
  vec<std::int64_t> result;
  for (const auto n : list) result.push_back(n);
  if (list.size() == 0)
    for (int d = 0; d < rank; ++d) result.push_back(number);
  return result;
}

}  // namespace detail

/// `x` with `low[d]` elements before and `high[d]` behind its elements along every dim d, and `interior[d]` between any two; all of
/// them `number`. Negative numbers in low and high take elements away (StableHLO's `pad`). Extent n becomes
/// low + n + (n-1) * interior + high; without `interior`, nothing comes between.
///
/// Where a padded dim is split, its shards are those of the result: devices send each other by collective_permute the elements
/// that lie in another part of the result than of `x`; a device at most as many as its larger shard has, whole shards only
/// where the extents differ much. No communication along other dims, and never a gather. Its gradient is a slice. A pad and the slices
/// of it are one movement where nothing else reads it (GSPMD 4.6): what a slice puts back in its place is not sent.
///
/// Errors, at compile time: lists that have not one number for each dim, a negative interior, a padding that takes away more than
/// there is, a number that the element type does not hold.
///
///     auto framed = pad(x, {1, 1}, {1, 1});            // [8,8] -> [10,10]
///     auto spread = pad(x, {0, 0}, {0, 0}, 0, {1, 0});  // [8,8] -> [15,8]: a row of zeros between any two
constexpr value pad(value x, integers low, integers high, detail::written_number number = 0, integers interior = {},
                    location at = location::current()) {
  if (!x.is_valid()) return {};
  const auto between = detail::filled(interior, x.rank(), 0);
  return detail::made(detail::add_pad(*x.graph(), x.id(), low, high, integers(between.data(), between.size()), number, at), x);
}

/// The elements of `x` whose index along every dim d is start[d], start[d] + stride[d], ..., below limit[d]: NumPy's
/// `x[start:limit:stride]`, StableHLO's `slice`. Without `stride` all of them from start to before limit.
///
/// Where a sliced dim is split, its shards are those of the result: devices send each other by collective_permute the elements
/// that lie in another part of the result than of `x`, a device at most as many as its shard has. No communication along
/// other dims, and never a gather. Its gradient is a padding with zeros.
///
/// Errors, at compile time: lists that have not one number for each dim, a stride below 1, a range that is not inside of the dim.
///
///     auto inner = slice(x, {1, 1}, {7, 7});           // [8,8] -> [6,6]
///     auto even = slice(x, {0, 0}, {8, 8}, {2, 1});     // [8,8] -> [4,8]: every other row
constexpr value slice(value x, integers start, integers limit, integers stride = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  const auto steps = detail::filled(stride, x.rank(), 1);
  return detail::made(detail::add_slice(*x.graph(), x.id(), start, limit, integers(steps.data(), steps.size()), at), x);
}

/// `x` with the order of its elements turned round along the dims named: element i of a dim of n is element n - 1 - i of `x`.
///
/// Where such a dim is split, devices trade their shards by collective_permute, the first one with the last one and so on; a shard
/// that is its own opposite stays. No communication along other dims. Its gradient is the reverse of the same dims.
///
/// Errors, at compile time: a dim that is not there, or named twice.
///
///     auto backwards = reverse(x, {0});
constexpr value reverse(value x, integers dims, location at = location::current()) {
  if (!x.is_valid()) return {};
  detail::vec<int> counted;
  for (const auto d : dims) counted.push_back(detail::counted_dim(d, x.rank()));
  return detail::made(detail::add_reverse(*x.graph(), x.id(), detail::span<const int>(counted.data(), counted.size()), at), x);
}

/// `x` with its elements moved `by` places on along `dim`; what goes over the end comes in at the begin: NumPy's `roll(x, by, dim)`.
/// Element i of the result is element i - by of `x`, counted round. Any number is right, also a negative one.
///
/// Where `dim` is split, a device gets what lies across the ends of its shard by collective_permute: with shards of s indices
/// min(|by|, s) of them, round the end of the tensor too. No communication along other dims. Its gradient is the roll by -by.
///
/// Errors, at compile time: a dim that is not there.
///
///     auto east = roll(x, 1, -1);
constexpr value roll(value x, std::int64_t by, int dim, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::made(detail::add_roll(*x.graph(), x.id(), by, detail::counted_dim(dim, x.rank()), at), x);
}

/// The tensors one behind the other along `dim`: NumPy's and StableHLO's `concatenate`. Any number of them, of one element type,
/// with the same extents along the other dims. Up to 8 are one operator; more are joined in groups of 8, and these again, so that
/// each element is copied once for every level.
///
/// Where `dim` is split, the shards are those of the result: each tensor is one collective_permute, in which devices send the
/// elements that lie in another part of the result than of the tensor. No communication along other dims, and never a gather. Its
/// gradients are slices.
///
/// Errors, at compile time: no tensors, a dim that is not there, other extents or element types that differ.
///
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

/// A tensor of one number, in the program that `like` belongs to. Its elements are of type T, without T of the number's own.
template <class T = void, class Number>
constexpr value constant(value like, integers shape, Number number, location at = location::current()) {
  using element = std::conditional_t<std::is_void_v<T>, Number, T>;
  if (!like.is_valid()) return {};
  if (!detail::has_room_for_dims(*like.graph(), shape.size(), "constant", at)) return detail::made(-1, like);
  const auto e = detail::extents_of(shape);
  return detail::made(*like.graph(), detail::add_number(*like.graph(), number, detail::dtype_of<element>(), e, "constant", at),
                      detail::dtype_of<element>(), e);
}

/// A tensor of zeros with the type and shape of `x`, of which nothing else is read. What a loop adds to it is reduced once, after
/// the loop (see fori_loop); `x * 0.0` is no such zero, because it is not 0 where x is infinite.
///
///     auto gradient = fori_loop(4, [&](value i, value g) { return g + gradient_of(i); }, zeros_like(w));
constexpr value zeros_like(value x, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::made(detail::add_constant(*x.graph(), x.type(), detail::extents(x.shape()), 0, 0, at), x);
}

/// A tensor whose elements are their global index along `dim`, in the program that `like` belongs to. No communication.
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

/// The identity, sharded as `Sharding` says: `reshard(x, split<"data", _>{})`. What completion does not choose by itself is
/// written so. Its gradient is a copy of itself (GSPMD 3.6).
template <dim_spec... Dims>
constexpr value reshard(value x, split<Dims...>, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::annotate(x, detail::resolve(*x.graph()->mesh, split<Dims...>::specs(), split<Dims...>::rank, x.rank()),
                          "reshard", at);
}

/// The same for the other ways to write a sharding: `placements<...>`, `xla_split<...>`, and `on<mesh, ...>`, which names one of
/// the meshes that the program is compiled for.
///
///     auto inside = reshard(x, on<expert, split<"ep", _>>{});
template <class Sharding>
  requires requires(const detail::mesh_info& mesh) { Sharding::resolve(mesh, 0); }
constexpr value reshard(value x, Sharding, location at = location::current()) {
  if (!x.is_valid()) return {};
  return detail::annotate(x, Sharding::resolve(*x.graph()->mesh, x.rank()), "reshard", at);
}

/// The identity on `x`, sharded as `other` is, a tensor of the same shape that `x` need not depend on: what completion finds
/// for one of them it gives to the other (GSPMD 3.5). The gradient passes through to `x`.
///
///     velocity = shard_alike(velocity, w);
constexpr value shard_alike(value x, value other, location at = location::current()) {
  if (!x.is_valid() || !other.is_valid()) return {};
  return detail::made(detail::add_shard_alike(*x.graph(), x.id(), other.id(), at), x);
}

/// The identity, sharded by position (GSPMD 3.1): dim `d` is split by mesh axis `dims_mapping[d]`, -1 is not mapped.
/// With several views of the devices these are the axes of the first.
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

/// The identity, held whole by every device (GShard 3.2).
constexpr value replicate(value x, location at = location::current()) { return detail::annotate(x, {}, "replicate", at); }

/// The identity, cut as a device assignment of this shape says (GShard 3.2): dim `d` in `parts[d]` parts. Mesh axes are taken in
/// order; axes that are left over replicate.
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

/// The identity with one dim cut into `n` parts (GShard 3.2).
constexpr value split_dim(value x, int dim, int n, location at = location::current()) {
  if (!x.is_valid()) return {};
  dim = detail::counted_dim(dim, x.rank());
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

/// Allows no communication on the operands of the operator that made `x`: if they would have to be resharded or reduced, the
/// program is refused with the operand, both shardings and the way out.
constexpr value forbid_reshard(value x) {
  if (x.is_valid()) x.graph()->maker_of(x.id()).forbid_reshard = true;
  return x;
}

/// `x`, which no operator that reads it may gather: it works on the split that `x` has, or on another one by the same axes. Where an
/// operator can do neither the program is refused with operand, split and axis. A reshard that you write, and what an output is annotated
/// with, is not forbidden. Its gradient is kept likewise. No communication by itself.
///
///     auto y = einsum<"bd,df->bf">(x, keep_split(w));   // w stays where it is, whatever the sizes of x and w
constexpr value keep_split(value x) {
  if (x.is_valid()) x.graph()->nodes[static_cast<std::size_t>(x.id())].keep_split = true;
  return x;
}

/// `x`, which is left partial, where its operator leaves it so, until an operator needs the sum: those that are linear in it pass it on,
/// though the sum may be larger then or be made several times. By itself the planner reduces a value that several operators read, or that
/// grows, where it is made. Never refused: what needs the sum (an operator that is not linear, an output, a reshard, a loop that reads `x`
/// from outside) reduces it. Its gradient is kept likewise.
///
///     auto y = keep_partial(einsum<"bd,df->bf">(x, w)) * 0.5;   // d split: one all_reduce, of y or of what is computed with it
constexpr value keep_partial(value x) {
  if (x.is_valid()) x.graph()->nodes[static_cast<std::size_t>(x.id())].keep_partial = true;
  return x;
}

/// Allows the operator that made `x` to gather operands whose split it cannot keep, along the axes that it cannot use; without
/// it such a program is refused with the operand and both shardings. Its gradient is allowed the same.
///
///     auto y = allow_replication(reshape(x, {3, 2}));   // x is [2,3], its rows split: no part of y lies on one device
constexpr value allow_replication(value x) {
  if (x.is_valid()) x.graph()->maker_of(x.id()).allow_replication = true;
  return x;
}

}  // namespace gspmd
