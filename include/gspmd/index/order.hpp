// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/index/detail/scan_op.hpp"
#include "gspmd/ops/reduce.hpp"

/// Running sums, largest elements and their indices, along a dim. The dim may be split and is never gathered.
namespace gspmd {

/// The options of a running reduction.
struct scan_options {
  bool exclusive = false;  // exclude the element itself: the first result is the identity of the monoid
  bool reverse = false;    // from the last element to the first
};

/// Returns the running reduction by a monoid along `dim`: result[i] = x[0] op ... op x[i]. This order determines the
/// rounding of floats. A running maximum or minimum that is zero is +0: -0 and +0 are equal, and otherwise the mesh
/// would determine the sign. Sums have gradients, and so have products if no element is 0.
///
/// **Shapes.** The shards of `x` give the shards of the result.
/// **Communication.** If `dim` is split, every device reduces its part. One all_gather sends the totals to all
/// devices: with n parts a device sends n - 1 elements for every line. Then each device scans its part, starting from
/// the total of the parts before it.
/// **Errors.** A dim that does not exist, a monoid that the type does not have.
/// **Example.**
///     scan_along(x, monoid::max, 0)        scan_along(x, monoid::add, -1, {.exclusive = true})
constexpr value scan_along(value x, monoid kind, int dim, scan_options options = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  const int id =
      detail::add_scan(*x.graph(), x.id(), detail::counted_dim(dim, x.rank()), kind, options.exclusive, options.reverse, at);
  return detail::made(id, x);
}
/// Returns the sums of all elements up to each index along `dim`: scan_along(x, monoid::add, dim).
constexpr value cumsum(value x, int dim, scan_options options = {}, location at = location::current()) {
  return scan_along(x, monoid::add, dim, options, at);
}

/// Returns a pair of the k largest elements along the last dim, in descending order, and their indices (s32). NaN is
/// larger than all numbers. If elements are equal, the element with the lower index precedes. The gradient is added to
/// the elements that were found.
///
/// **Communication.** If the dim is split, every device finds the k largest elements of its part. One all_gather of
/// values and one all_gather of indices send them to all devices: with n parts a device sends (n - 1) * k elements for
/// every line, in each all_gather. Every device then finds the k largest elements among these, so the result is whole
/// on these devices.
/// **Errors.** k is larger than the extent of the dim, a tensor of rank 0.
/// **Example.**
///     auto [values, indices] = top_k(logits, 5);
constexpr std::pair<value, value> top_k(value x, std::int64_t k, location at = location::current()) {
  if (!x.is_valid()) return {};
  auto& g = *x.graph();
  detail::extents shape(x.shape());
  if (shape.count > 0) shape[shape.count - 1] = k;
  const int id = detail::add_top_k(g, x.id(), k, at);
  if (id >= 0) return {value{&g, id}, value{&g, id + 1}};
  return {detail::made(g, -1, x.type(), shape), detail::made(g, -1, dtype::s32, shape)};
}

namespace detail {

/// Returns the smallest index along `dim` of an element that is NaN or equals the largest (or smallest) element. For
/// the maximum: {1, 3, 3} -> 1 and {1, NaN, 3} -> 1.
constexpr value index_of_best(value x, int dim, monoid kind, const char* op, location at) {
  if (!x.is_valid()) return {};
  const one_call call(x.graph(), op, {x.id()});
  auto& g = *x.graph();
  const int d = counted_dim(dim, x.rank());
  extents left;
  for (int k = 0; k < x.rank(); ++k)
    if (k != d) left.push_back(x.shape()[k]);
  if (d < 0 || d >= x.rank() || x.shape()[d] == 0) {
    g.fail(at, op, mistake::dim,
           d < 0 || d >= x.rank()
               ? text("dim ") << dim << " is not a dim of " << shape_text(x.shape()) << "; dims count from 0"
               : text("dim ") << dim << " of " << shape_text(x.shape()) << " has no elements; give it at least one");
    return made(g, -1, dtype::s32, left);
  }
  const auto mask = dim_bit(d);
  const value best = keep_dims(reduce(x, kind, d, at), x, mask, at);
  const value index = made(g, add_iota(g, dtype::s32, extents(x.shape()), d, at), dtype::s32, x.shape());
  value hit = elementwise(code_of<compare_eq_op>, {operand(x, at), operand(best, at)}, at);
  if (is_floating(x.type()))
    hit = elementwise(code_of<or_op>,
                      {operand(hit, at), operand(elementwise(code_of<compare_ne_op>, {operand(x, at), operand(x, at)}, at), at)},
                      at);
  const value none = made(g, add_constant(g, dtype::s32, extents(x.shape()), 0, x.shape()[d] - 1, at), dtype::s32, x.shape());
  const value where = elementwise(code_of<where_op>, {operand(hit, at), operand(index, at), operand(none, at)}, at);
  return reduce(where, monoid::min, d, at);
}

}  // namespace detail

/// Returns the index (s32) of the largest element along `dim`. If several elements are equal, it is the smallest
/// index. NaN is larger than all numbers, as in NumPy. argmax has no gradient.
///
/// **Communication.** If the dim is split, the result is partial: an all_reduce of the largest elements, then an
/// all_reduce of their indices.
/// **Example.**
///     argmax(logits, -1)
constexpr value argmax(value x, int dim, location at = location::current()) {
  return detail::index_of_best(x, dim, monoid::max, "argmax", at);
}
/// The same for the smallest element. NaN is smaller than all numbers, as in NumPy.
constexpr value argmin(value x, int dim, location at = location::current()) {
  return detail::index_of_best(x, dim, monoid::min, "argmin", at);
}

}  // namespace gspmd
