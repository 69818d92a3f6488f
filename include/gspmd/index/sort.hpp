// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/ops/sort.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/program.hpp"

/// Tensors in order along a dim, which may be split: no device ever has a whole line because of it, unless lines are so many that
/// each device can take some of them.
///
/// NaN is larger than all numbers, whatever its sign, and as in NumPy: the last one, the first one where the order is descending. Of a
/// single tensor -0 stands before 0; of several, and for indices, they are equal, and equal elements keep their order. The same
/// bits on every mesh.
///
/// Where the dim is split into P parts of m elements, a device sends for each of its lines: m elements of every tensor to the other part of
/// two; of more parts, whichever is less, 2 (P-1) m / P where its lines are a multiple of P (each device sorts some of the lines, which
/// come and go in two all_to_alls), or 3 m - 2 m / P, whatever P is, by Leighton's columnsort ("Tight bounds on the complexity of parallel
/// sorting", 1985): for that m is rounded up to an even multiple of P that is at least 2 (P-1)^2. The indices that keep equal elements in
/// their order are sent like a tensor. These are constants of the plan, as they depend on no element.
namespace gspmd {

/// How tensors are put in order.
struct sort_options {
  bool descending = false;  // the largest one first; equal elements keep their order all the same
};

namespace detail {

/// The dim of a sort, counted; -1 and a mistake if it cannot go along it, or these elements have no order.
constexpr int sorted_dim(value x, int dim, int keys, detail::span<const value> tensors, const char* op, location at) {
  auto& g = *x.graph();
  const int d = counted_dim(dim, x.rank());
  if (d < 0 || d >= x.rank())
    return g.fail(at, op, mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(x.shape()) << "; dims count from 0");
  for (int k = 0; k < keys; ++k)
    if (const dtype type = tensors[static_cast<std::size_t>(k)].type(); !is_defined(monoid::maximum, type))
      return g.fail(at, op, mistake::type,
                    text("elements of ") << name_of(type) << " have no order; sort by real numbers made of them");
  vec<int> ids;
  for (const value t : tensors) ids.push_back(t.id());
  if (!g.may_read({ids.data(), ids.size()}, at, op)) return -1;
  for (const value t : tensors)
    if (!(extents(t.shape()) == extents(x.shape())))
      return g.fail(at, op, mistake::extent,
                    text("the tensors have the shapes ") << shape_text(x.shape()) << " and " << shape_text(t.shape())
                                                         << "; what is put in order together has one shape: broadcast_to");
  return d;
}
constexpr value sort_made(graph& g, int id, value like) { return made(g, id, like.type(), extents(like.shape())); }

}  // namespace detail

/// The elements of `x` in order along `dim`, the smallest one first. Global and local: shards give shards. What it sends: see above.
/// Gradient: to where the elements came from. Errors: a dim that is not there, complex elements.
///
///     sort(scores)        sort(scores, 0, {.descending = true})
constexpr value sort(value x, int dim = -1, sort_options options = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  const int d = detail::sorted_dim(x, dim, 1, {&x, 1}, "sort", at);
  const int id = x.id();
  return detail::made(d < 0 ? -1 : detail::add_sort(*x.graph(), {&id, 1}, d, {1, options.descending}, at), x);
}

/// The indices along `dim` at which the elements of `x` stand when they are in order: s32, s64 of a dim of 2^31 - 1 and more. Equal
/// elements stand in the order of their indices. It has no gradient.
///
///     take_along(x, argsort(x, 0), 0)   // sort(x, 0)
constexpr value argsort(value x, int dim = -1, sort_options options = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  auto& g = *x.graph();
  const int d = detail::sorted_dim(x, dim, 1, {&x, 1}, "argsort", at);
  if (d < 0) return detail::made(g, -1, dtype::s32, x.shape());
  const detail::one_call call(&g, "argsort", {x.id()});
  const int id = x.id(), sorted = detail::add_stable_sort(g, {&id, 1}, 1, d, options.descending, at);
  return sorted < 0 ? detail::made(g, -1, dtype::s32, x.shape()) : value{&g, sorted + 1};
}

/// Two or three tensors of one shape, all in the order of the first `keys` of them: by the first one, where its elements are equal by the
/// second one, and so on; what is equal keeps its order. Gradients as of sort. Errors: those of sort, other shapes, fewer than one key
/// or more keys than tensors. Of more tensors, argsort says where all elements come from.
///
///     auto [names, scores] = sort_together({ids, scores}, 1, -1);
template <std::size_t N>
constexpr std::array<value, N> sort_together(const value (&tensors)[N], int keys, int dim = -1, sort_options options = {},
                                             location at = location::current()) {
  static_assert(
      N <= static_cast<std::size_t>(detail::max_sorted),
      "gspmd: sort_together: at most three tensors are sorted together; write take_along(x, argsort(key, dim), dim) for more");
  std::array<value, N> all{};
  for (const value t : tensors)
    if (!t.is_valid()) return all;
  auto& g = *tensors[0].graph();
  const bool has_keys = keys >= 1 && keys <= static_cast<int>(N);
  if (!has_keys)
    g.fail(at, "sort_together", detail::mistake::bounds,
           detail::text("sorts ") << static_cast<std::int64_t>(N) << " tensors by " << keys
                                  << "; the number of keys is from 1 to theirs");
  const int d = has_keys ? detail::sorted_dim(tensors[0], dim, keys, tensors, "sort_together", at) : -1;
  int ids[N]{};
  for (std::size_t k = 0; k < N; ++k) ids[k] = tensors[k].id();
  const detail::one_call call(&g, "sort_together", ids);
  const int sorted = d < 0 ? -1 : detail::add_stable_sort(g, ids, keys, d, options.descending, at);
  for (int k = 0; k < static_cast<int>(N); ++k)
    all[static_cast<std::size_t>(k)] = detail::sort_made(g, sorted < 0 ? -1 : sorted + k + (k < keys ? 0 : 1), tensors[k]);
  return all;
}

}  // namespace gspmd
