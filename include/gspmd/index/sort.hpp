// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/index/detail/sort_op.hpp"
#include "gspmd/program/program.hpp"

/// Sorts along a dim, which may be split. A device holds whole lines only if the number of lines allows each device to
/// sort some lines.
///
/// NaN is larger than all numbers, whatever its sign, as in NumPy: it is last, or first in descending order. If a
/// single tensor is sorted, -0 precedes 0. If several tensors are sorted, and for indices, -0 and 0 are equal. Equal
/// elements keep their order. The result has the same bits on every mesh.
///
/// The communication depends on the number of parts P and the number m of elements in each part. For each of its lines
/// and each tensor, a device sends:
///
///     2 parts                                   m elements, to the other part
///     P parts, lines are a multiple of P        2 (P-1) m / P: two all_to_alls, and each device sorts some lines in
///                                               between
///     P parts                                   3 m - 2 m / P: Leighton's columnsort
///
/// For more than 2 parts the planner takes the method that sends less. Columnsort rounds m up to an even multiple of P
/// that is at least 2 (P-1)^2 ("Tight bounds on the complexity of parallel sorting", 1985). The indices that keep
/// equal elements in their order are sent like another tensor. These numbers depend on no element, so they are
/// constants of the plan.
namespace gspmd {

/// The options of a sort.
struct sort_options {
  bool descending = false;  // the largest element first; equal elements still keep their order
};

namespace detail {

/// Returns the dim of a sort, counted from 0. Returns -1 and records an error if the dim does not exist, the shapes
/// differ, or the elements have no order.
constexpr int sorted_dim(value x, std::int64_t dim, int keys, detail::span<const value> tensors, const char* op, location at) {
  auto& g = *x.graph();
  const int d = counted_dim(dim, x.rank());
  if (d < 0 || d >= x.rank())
    return g.fail(at, op, mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(x.shape()) << "; dims count from 0");
  for (int k = 0; k < keys; ++k)
    if (const dtype type = tensors[static_cast<std::size_t>(k)].type(); !is_defined(monoid::max, type))
      return g.fail(at, op, mistake::type,
                    text("elements of ") << name_of(type) << " have no order; sort by real numbers that are computed from them");
  vec<int> ids;
  for (const value t : tensors) ids.push_back(t.id());
  if (!g.may_read({ids.data(), ids.size()}, at, op)) return -1;
  for (const value t : tensors)
    if (!(extents(t.shape()) == extents(x.shape())))
      return g.fail(at, op, mistake::extent,
                    text("the tensors have the shapes ")
                        << shape_text(x.shape()) << " and " << shape_text(t.shape())
                        << "; tensors that are sorted together have one shape; use broadcast_to");
  return d;
}
constexpr value sort_made(graph& g, int id, value like) { return made(g, id, like.type(), extents(like.shape())); }

}  // namespace detail

/// Returns the elements of `x` in ascending order along `dim`. The gradient of an element is moved to the original
/// index of the element.
///
/// **Shapes.** The shards of `x` give the shards of the result.
/// **Communication.** See the top of this header.
/// **Errors.** A dim that does not exist, complex elements.
/// **Example.**
///     sort(scores)        sort(scores, 0, {.descending = true})
constexpr value sort(value x, int dim = -1, sort_options options = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  const int d = detail::sorted_dim(x, dim, 1, {&x, 1}, "sort", at);
  const int id = x.id();
  return detail::made(d < 0 ? -1 : detail::add_sort(*x.graph(), {&id, 1}, d, {1, options.descending}, at), x);
}

/// Returns the indices along `dim` that sort `x`: s32, or s64 for a dim of 2^31 - 1 and more. Indices of equal
/// elements are in ascending order. argsort has no gradient.
///
/// **Example.**
///     take_along_axis(x, argsort(x, 0), 0)   // sort(x, 0)
constexpr value argsort(value x, int dim = -1, sort_options options = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  auto& g = *x.graph();
  const int d = detail::sorted_dim(x, dim, 1, {&x, 1}, "argsort", at);
  if (d < 0) return detail::made(g, -1, dtype::s32, x.shape());
  const detail::one_call call(&g, "argsort", {x.id()});
  const int id = x.id(), sorted = detail::add_stable_sort(g, {&id, 1}, 1, d, options.descending, at);
  return sorted < 0 ? detail::made(g, -1, dtype::s32, x.shape()) : value{&g, sorted + 1};
}

/// Sorts two or three tensors of one shape by the first `keys` tensors. If the elements of the first key are equal,
/// the second key decides, and so on. Elements with equal keys keep their order. The gradients are those of sort. For
/// more tensors, use the indices of argsort with take_along_axis.
///
/// **Errors.** Those of sort, different shapes, fewer than one key, more keys than tensors.
/// **Example.**
///     auto [names, scores] = sort_together({ids, scores}, 1, along(-1));
template <std::size_t N>
constexpr std::array<value, N> sort_together(const value (&tensors)[N], int keys, along dim = along(-1),
                                             sort_options options = {}, location at = location::current()) {
  static_assert(N <= static_cast<std::size_t>(detail::max_sorted),
                "gspmd: sort_together: at most three tensors are sorted together; write take_along_axis(x, argsort(key, dim), "
                "dim) for more");
  std::array<value, N> all{};
  for (const value t : tensors)
    if (!t.is_valid()) return all;
  auto& g = *tensors[0].graph();
  const bool has_keys = keys >= 1 && keys <= static_cast<int>(N);
  if (!has_keys)
    g.fail(at, "sort_together", detail::mistake::bounds,
           detail::text("sorts ") << static_cast<std::int64_t>(N) << " tensors by " << keys
                                  << "; the number of keys is from 1 to theirs");
  const int d = has_keys ? detail::sorted_dim(tensors[0], dim.dim, keys, tensors, "sort_together", at) : -1;
  int ids[N]{};
  for (std::size_t k = 0; k < N; ++k) ids[k] = tensors[k].id();
  const detail::one_call call(&g, "sort_together", ids);
  const int sorted = d < 0 ? -1 : detail::add_stable_sort(g, ids, keys, d, options.descending, at);
  for (int k = 0; k < static_cast<int>(N); ++k)
    all[static_cast<std::size_t>(k)] = detail::sort_made(g, sorted < 0 ? -1 : sorted + k + (k < keys ? 0 : 1), tensors[k]);
  return all;
}

}  // namespace gspmd
