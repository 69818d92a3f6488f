// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/integers.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/window.hpp"

/// Pooling and its like: reduce_window as networks and grids use it. Lists have a number for each dim, 1 for those that stay (batch,
/// channels), in whatever order the dims come; splits, communication, gradients and errors are reduce_window's.
namespace gspmd {
namespace detail {

/// How many elements of a dim of `extent` each of so many windows holds, as a tensor of the shape of x that is stretched along the other
/// dims. It is computed where it is read: counts are not exchanged.
constexpr value elements_in_windows(value x, int dim, std::int64_t extent, const padded_window& w, location at) {
  graph& g = *x.graph();
  const extents shape = x.shape();
  const value index = made(g, add_iota(g, dtype::s64, shape, dim, at), dtype::s64, shape);
  const value begin = operand(operand(index, at) * operand(w.stride, at), at) - operand(w.low, at);
  const value end = minimum(operand(operand(begin, at) + operand(w.size, at), at), operand(extent, at));
  const value count = operand(end, at) - operand(maximum(operand(begin, at), operand(std::int64_t{0}, at)), at);
  const value some = maximum(operand(count, at), operand(std::int64_t{1}, at));
  const int id = some.id();
  return made(g, add_elementwise(g, opcode::convert, std::span<const int>(&id, 1), at, x.type()), x.type(), shape);
}

}  // namespace detail

/// The largest element of each window: windows of size[d] elements, stride[d] apart (as far as they are large, if there is no list), over
/// `x` with low[d] places before and high[d] behind it that do not count. The gradient of a window goes to the first element that is
/// its largest, in row-major order; to the first NaN if there is one. Windows that hold no element are minus infinity.
///
///     auto y = max_pool(x, {1, 2, 2, 1});                                   // [n,h,w,c] -> [n,h/2,w/2,c]
///     auto z = max_pool(x, {1, 3, 3, 1}, {1, 2, 2, 1}, {0, 1, 1, 0}, {0, 1, 1, 0});
constexpr value max_pool(value x, integers size, integers stride = {}, integers low = {}, integers high = {},
                         location at = location::current()) {
  return reduce_window(x, monoid::maximum, size, stride.empty() ? size : stride, low, high, {}, {}, at);
}
/// The sum of each window, likewise.
constexpr value sum_pool(value x, integers size, integers stride = {}, integers low = {}, integers high = {},
                         location at = location::current()) {
  return reduce_window(x, monoid::add, size, stride.empty() ? size : stride, low, high, {}, {}, at);
}

/// The mean of each window of a float tensor, likewise: over the elements that it holds; padding does not count (0 for a window that
/// holds none).
///
///     auto y = avg_pool(x, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1});
constexpr value avg_pool(value x, integers size, integers stride = {}, integers low = {}, integers high = {},
                         location at = location::current()) {
  if (x.is_valid() && !detail::is_floating(x.type()))
    x.graph()->fail(at, "avg_pool", detail::mistake::number,
                    detail::text("the mean of ") << detail::name_of(x.type()) << " is in general none of "
                                                 << detail::name_of(x.type()) << "; write avg_pool(convert<float>(x), ...)");
  value result = sum_pool(x, size, stride, low, high, at);
  if (!result.is_valid() || result.graph()->failed()) return result;
  const auto before = detail::filled(low, x.rank(), 0), behind = detail::filled(high, x.rank(), 0);
  std::int64_t whole = 1;  // of dims without padding, all windows hold as many
  for (int d = 0; d < x.rank(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (before[i] <= 0 && behind[i] <= 0) {
      whole *= size[i];
      continue;
    }
    const detail::padded_window w{size[i], stride.empty() ? size[i] : stride[i], before[i], behind[i]};
    result = operand(result, at) / operand(detail::elements_in_windows(result, d, x.shape()[d], w, at), at);
  }
  return whole == 1 ? result : operand(result, at) * operand(1.0 / static_cast<double>(whole), at);
}

/// `x` with every element repeated factors[d] times along every dim d: the nearest neighbour's interpolation to a finer grid. Its
/// gradient is a sum_pool. Like any reduction of windows it keeps splits, and a device gets the elements of others' shards that its own
/// part of the finer grid shows.
///
///     auto fine = upsample(coarse, {1, 2, 2});   // [c,h,w] -> [c,2h,2w]
constexpr value upsample(value x, integers factors, location at = location::current()) {
  if (!x.is_valid()) return {};
  detail::vec<std::int64_t> around;  // a window of factor places holds one element, wherever it lies
  for (const auto f : factors) around.push_back(f - 1);
  const integers both(around.data(), around.size());
  const monoid kind = x.type() == dtype::pred ? monoid::or_ : monoid::add;
  return reduce_window(x, kind, factors, {}, both, both, factors, {}, at);
}

}  // namespace gspmd
