// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/reduce.hpp"
#include "gspmd/ops/shape.hpp"

/// Functions that add, remove, stretch and split dims, and triangles of matrices. All are composed of other operators
/// and have their gradients.
namespace gspmd {

/// Returns `x` with one more dim of extent 1. The new dim has number `dim` in the result. No communication.
///
/// **Example.**
///     auto column = expand_dims(x, -1);                // [8] -> [8,1]
constexpr value expand_dims(value x, int dim, location at = location::current()) {
  if (!x.is_valid()) return {};
  dim = detail::counted_dim(dim, x.rank() + 1);
  detail::inline_vec<std::int64_t, detail::max_rank> dims;
  detail::extents shape = x.shape();
  if (dim < 0 || dim > x.rank())
    return detail::made(x.graph()->fail(at, "expand_dims", detail::mistake::dim,
                                        detail::text("dim ") << dim << " is not a dim of the result of rank " << x.rank() + 1
                                                             << "; dims count from 0"),
                        x);
  if (!detail::has_room_for_dims(*x.graph(), static_cast<std::size_t>(x.rank() + 1), "expand_dims", at))
    return detail::made(-1, x);
  shape.insert(dim, 1);
  for (int d = 0; d <= x.rank(); ++d)
    if (d != dim) dims.push_back(d);
  return broadcast_in_dim(x, shape, integers(dims), at);
}

/// Returns `x` without dim `dim`, whose extent is 1.
///
/// **Communication.** None, unless mesh axes split the dim. Then the result is reduced along these axes.
/// **Example.**
///     auto row = squeeze(x, 0);                        // [1,8] -> [8]
constexpr value squeeze(value x, int dim, location at = location::current()) {
  if (!x.is_valid()) return {};
  dim = detail::counted_dim(dim, x.rank());
  if (dim < 0 || dim >= x.rank() || x.shape()[dim] != 1)
    return detail::made(x.graph()->fail(at, "squeeze", detail::mistake::dim,
                                        detail::text("dim ") << dim << " of " << detail::shape_text(x.shape())
                                                             << " is no dim of extent 1; dims count from 0"),
                        x);
  // The sum has a single element, which one device along the axes of the dim holds.
  return reduce(x, x.type() == dtype::pred ? monoid::or_ : monoid::add, dim, at);
}

/// Returns `x` stretched to a shape as in NumPy: dims are aligned at the right, extents of 1 are repeated. No
/// communication.
///
/// **Example.**
///     auto y = broadcast_to(x, {4, 8});                // [8] or [1,8] or [4,1] -> [4,8]
constexpr value broadcast_to(value x, integers shape, location at = location::current()) {
  if (!x.is_valid()) return {};
  if (!detail::has_room_for_dims(*x.graph(), shape.size(), "broadcast_to", at)) return detail::made(-1, x);
  const auto to = detail::extents_of(shape);
  const int id = detail::stretch(*x.graph(), x.id(), to, at);
  if (id >= 0 && x.graph()->nodes[static_cast<std::size_t>(id)].shape == to) return {x.graph(), id};
  return detail::made(
      *x.graph(),
      x.graph()->fail(at, "broadcast_to", detail::mistake::extent,
                      detail::text("the tensor is ")
                          << detail::shape_text(x.shape()) << " and does not stretch to " << detail::shape_text(to)
                          << ": dims are aligned at the right, and only extents of 1 are repeated"),
      x.type(), to);
}

/// Joins tensors of one shape along a new dim `dim` of the result. Communication and errors: see concatenate.
///
/// **Example.**
///     auto pair = stack({x, y}, 0);                    // [8], [8] -> [2,8]
constexpr value stack(detail::span<const value> tensors, int dim, location at = location::current()) {
  detail::vec<value> parts;
  int counted = dim;
  for (const auto& x : tensors) {
    counted = detail::counted_dim(dim, x.rank() + 1);
    parts.push_back(expand_dims(x, dim, at));
  }
  return concatenate(detail::span<const value>(parts.data(), parts.size()), counted, at);
}
constexpr value stack(std::initializer_list<value> tensors, int dim, location at = location::current()) {
  return stack(detail::span<const value>(tensors.begin(), tensors.size()), dim, at);
}

/// Splits `x` along a dim into `Parts` equal parts and returns them as an array. Communication is that of slice.
///
/// **Example.**
///     auto [low, high] = split_into<2>(x, 0);          // [8,4] -> [4,4], [4,4]
template <std::size_t Parts>
constexpr std::array<value, Parts> split_into(value x, int dim, location at = location::current()) {
  std::array<value, Parts> parts;
  if (!x.is_valid()) return parts;
  dim = detail::counted_dim(dim, x.rank());
  constexpr auto count = static_cast<std::int64_t>(Parts);
  if (dim < 0 || dim >= x.rank() || x.shape()[dim] % count != 0) {
    const int id = x.graph()->fail(at, "split_into", detail::mistake::dim,
                                   detail::text("dim ") << dim << " of " << detail::shape_text(x.shape()) << " is not cut into "
                                                        << count << " equal parts; slice cuts into parts that differ");
    for (auto& part : parts) part = detail::made(id, x);
    return parts;
  }
  const auto each = x.shape()[dim] / count;
  detail::extents start(x.rank(), 0), limit = x.shape();
  for (std::int64_t k = 0; k < count; ++k) {
    start[dim] = k * each;
    limit[dim] = (k + 1) * each;
    parts[static_cast<std::size_t>(k)] = slice(x, start, limit, {}, at);
  }
  return parts;
}

namespace detail {
template <class Compare>
constexpr value triangle(value x, std::int64_t diagonal, location at, Compare stays) {
  if (!x.is_valid()) return {};
  const one_call call(x.graph(), "triangle", {x.id()});
  if (x.rank() < 2)
    return made(x.graph()->fail(at, "triangle", mistake::rank,
                                text("the tensor is ") << shape_text(x.shape()) << "; a triangle is one of the last two dims"),
                x);
  auto& g = *x.graph();
  const auto index = [&](int dim) { return made(g, add_iota(g, dtype::s64, x.shape(), dim, at), dtype::s64, x.shape()); };
  const value further = operand(index(x.rank() - 1), at) - operand(index(x.rank() - 2), at);
  const value zero = made(add_constant(g, x.type(), x.shape(), 0, 0, at), x);
  return where(operand(stays(operand(further, at), operand(diagonal, at)), at), x, zero);
}
}  // namespace detail

/// Returns the lower triangle of each matrix in the last two dims, and zeros elsewhere: it keeps element [i,j] if
/// j - i <= diagonal. No communication.
///
/// **Example.**
///     auto mask = tril(constant(x, {8, 8}, 1.0f));
constexpr value tril(value x, std::int64_t diagonal = 0, location at = location::current()) {
  return detail::triangle(x, diagonal, at, [](operand a, operand b) { return a <= b; });
}
/// Returns the upper triangle of each matrix in the last two dims, and zeros elsewhere: it keeps element [i,j] if
/// j - i >= diagonal. No communication.
constexpr value triu(value x, std::int64_t diagonal = 0, location at = location::current()) {
  return detail::triangle(x, diagonal, at, [](operand a, operand b) { return a >= b; });
}

}  // namespace gspmd
