// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

namespace gspmd {
namespace detail {

constexpr dim_mask mask_of(std::initializer_list<int> dims, int rank) {
  if (dims.size() == 0) return dim_bit(rank) - 1;
  dim_mask mask = 0;
  for (const int d : dims) mask |= d < 0 || d >= rank ? dim_bit(63) : dim_bit(d);
  return mask;
}

/// Gives a reduced tensor its dims back, with extent 1.
constexpr value keep_dims(value reduced, value original, dim_mask dims, location at) {
  if (!reduced.is_valid()) return {};
  extents shape = original.shape();
  for (int d = 0; d < shape.count; ++d)
    if ((dims & dim_bit(d)) != 0) shape[d] = 1;
  return {reduced.graph(), add_reshape(*reduced.graph(), reduced.id(), shape, at)};
}

}  // namespace detail

/// Reduces the dims in `dims` (all of them if none is named) by a monoid; the others keep their order. Padding takes no part.
/// A split dim leaves the result partial; an all_reduce or reduce_scatter follows when somebody needs it.
constexpr value reduce(value x, monoid kind, std::initializer_list<int> dims = {}, location at = location::current()) {
  if (!x.is_valid()) return {};
  return {x.graph(), detail::add_reduce(*x.graph(), x.id(), detail::mask_of(dims, x.rank()), kind, at)};
}

/// The sum over `dims` (all of them if none is named).
constexpr value sum(value x, std::initializer_list<int> dims = {}, location at = location::current()) {
  return reduce(x, monoid::add, dims, at);
}

/// The mean over `dims` (all of them if none is named) of a float tensor.
constexpr value mean(value x, std::initializer_list<int> dims = {}, location at = location::current()) {
  const value total = sum(x, dims, at);
  if (!total.is_valid()) return {};
  const auto count = detail::elements(x.shape()) == 0 ? 0 : detail::elements(x.shape()) / detail::elements(total.shape());
  return operand(total, at) * operand(1.0 / static_cast<double>(count == 0 ? 1 : count), at);
}

/// exp(x) / sum(exp(x)) along `dim`, computed from x - max(x).
constexpr value softmax(value x, int dim, location at = location::current()) {
  const auto mask = detail::mask_of({dim}, x.rank());
  const value shifted = operand(x, at) - operand(detail::keep_dims(reduce(x, monoid::maximum, {dim}, at), x, mask, at), at);
  const value e = exponential(shifted, at);
  return operand(e, at) / operand(detail::keep_dims(sum(e, {dim}, at), x, mask, at), at);
}

/// x - log(sum(exp(x))) along `dim`, computed from x - max(x).
constexpr value log_softmax(value x, int dim, location at = location::current()) {
  const auto mask = detail::mask_of({dim}, x.rank());
  const value shifted = operand(x, at) - operand(detail::keep_dims(reduce(x, monoid::maximum, {dim}, at), x, mask, at), at);
  const value total = detail::keep_dims(sum(exponential(shifted, at), {dim}, at), x, mask, at);
  return operand(shifted, at) - operand(log(total, at), at);
}

/// A new last dim of extent `n` that is 1 at the index that `labels` (integers) names and 0 elsewhere.
template <class T>
constexpr value one_hot(value labels, std::int64_t n, location at = location::current()) {
  if (!labels.is_valid()) return {};
  auto& g = *labels.graph();
  detail::extents shape = labels.shape();
  detail::inline_vec<std::int8_t, detail::max_rank> dims;
  for (int d = 0; d < shape.count; ++d) dims.push_back(static_cast<std::int8_t>(d));
  shape.push_back(n);
  const value spread(&g, detail::add_broadcast(g, labels.id(), shape, dims, at));
  const value index(&g, detail::add_iota(g, labels.type(), shape, shape.count - 1, at));
  return convert<T>(equal(operand(spread, at), operand(index, at)), at);
}

}  // namespace gspmd
