// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/detail/ops/sources.hpp"

/// Tensors of the local view that are zeros on some devices, or around the elements of a device: partial values of a
/// sum. For another monoid, its identity replaces the zeros. `place` is a scalar s32: the position of the device.
namespace gspmd::detail {

constexpr int add_identity(graph& g, monoid kind, dtype type, const extents& shape, location at) {
  double real = 0;
  std::int64_t integer = 0;
  if (kind != monoid::add)
    with_element_type(type, [&]<class T>(T) {
      if constexpr (std::is_integral_v<T>) integer = static_cast<std::int64_t>(identity<T>(kind));
      else real = identity<double>(kind);
    });
  return add_constant(g, type, shape, real, integer, at);
}

/// Adds a value that is `x` on the device at position 0, and zeros on the others.
constexpr int add_first_or_zeros(graph& g, int x, int place, monoid kind, location at) {
  if (x < 0) return -1;
  const node like = g.nodes[static_cast<std::size_t>(x)];
  const int is = add_elementwise(g, code_of<compare_eq_op>, {place, add_constant(g, dtype::s32, {}, 0, 0, at)}, at);
  const int zeros = add_identity(g, kind, like.type, like.shape, at);
  return add_elementwise(g, code_of<where_op>, {add_broadcast(g, is, like.shape, {}, at), x, zeros}, at);
}

/// Adds a value that has `x` as part number `place` of the `n` parts of dim `d`, and zeros in the other parts.
constexpr int add_among_zeros(graph& g, int x, int place, std::int64_t n, int d, monoid kind, location at) {
  if (x < 0) return -1;
  const node like = g.nodes[static_cast<std::size_t>(x)];
  extents wide = like.shape, joined = like.shape;
  wide.insert(d, n);
  joined[d] = saturating_multiply(joined[d], n);
  inline_vec<std::int8_t, max_rank> dims;
  for (int k = 0; k < like.shape.count; ++k) dims.push_back(static_cast<std::int8_t>(k < d ? k : k + 1));
  const int copies = add_broadcast(g, x, wide, dims, at), own = add_broadcast(g, place, wide, {}, at);
  const int is = add_elementwise(g, code_of<compare_eq_op>, {add_iota(g, dtype::s32, wide, d, at), own}, at);
  return add_reshape(g, add_elementwise(g, code_of<where_op>, {is, copies, add_identity(g, kind, like.type, wide, at)}, at),
                     joined, at);
}

}  // namespace gspmd::detail
