// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/ops/boundary.hpp"
#include "gspmd/ops/composite.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/integers.hpp"
#include "gspmd/ops/shape.hpp"
#include "gspmd/windows/window.hpp"

/// Pooling and changes of resolution for networks and grids, by reduce_window. Lists have a number for each dim, in
/// the order of the dims, and 1 for a dim that does not change (batch, channels). Splits, communication, gradients and
/// errors are those of reduce_window.
namespace gspmd {
namespace detail {

/// Returns the number of elements of a dim of `extent` in each window, in the shape of x, stretched along the other
/// dims. The users of the numbers compute them, so they are not exchanged.
constexpr value elements_in_windows(value x, int dim, std::int64_t extent, const padded_window& w, location at) {
  graph& g = *x.graph();
  const extents shape = x.shape();
  const value index = made(g, add_iota(g, dtype::s64, shape, dim, at), dtype::s64, shape);
  const value begin = operand(operand(index, at) * operand(w.stride, at), at) - operand(w.low, at);
  const value end = min(operand(operand(begin, at) + operand(w.size, at), at), operand(extent, at));
  const value count = operand(end, at) - operand(max(operand(begin, at), operand(std::int64_t{0}, at)), at);
  return converted(max(operand(count, at), operand(std::int64_t{1}, at)), x.type(), at);
}

/// Returns true if there is a factor for each dim, and each factor is at least 1. Otherwise records an error.
constexpr bool fit_factors(value x, const char* op, integers factors, location at) {
  graph& g = *x.graph();
  if (factors.size() != static_cast<std::size_t>(x.rank()))
    return g.fail(at, op, mistake::rank,
                  text("names ") << static_cast<std::int64_t>(factors.size()) << " factors for the dims of "
                                 << shape_text(x.shape()) << "; there is one for each, 1 for a dim that stays") >= 0;
  for (int d = 0; d < x.rank(); ++d)
    if (const auto f = factors[static_cast<std::size_t>(d)]; f < 1 || f > std::int64_t{1} << 31)
      return g.fail(at, op, mistake::window,
                    text("has a factor of ") << f << " along dim " << d << " of " << shape_text(x.shape())
                                             << "; it is at least 1, and at most 2^31") >= 0;
  return true;
}
constexpr bool has_means(value x, const char* op, location at) {
  if (is_floating(x.type())) return true;
  return x.graph()->fail(at, op, mistake::number,
                         text("the mean of ") << name_of(x.type()) << " is in general none of " << name_of(x.type()) << "; write "
                                              << op << "(cast<double>(x), ...)") >= 0;
}

}  // namespace detail

/// Returns the largest element of each window. Windows have size[d] elements and are stride[d] apart (default:
/// `size`). Padding of low[d] elements before `x` and high[d] elements after it does not count. A window without
/// elements gives minus infinity. The gradient of a window is added to its first largest element, in row-major order,
/// or to its first NaN.
///
/// **Example.**
///     auto y = max_pool(x, {1, 2, 2, 1});                                   // [n,h,w,c] -> [n,h/2,w/2,c]
///     auto z = max_pool(x, {1, 3, 3, 1}, {1, 2, 2, 1}, {0, 1, 1, 0}, {0, 1, 1, 0});
constexpr value max_pool(value x, integers size, integers stride = {}, integers low = {}, integers high = {},
                         location at = location::current()) {
  return reduce_window(x, monoid::max, size, stride.empty() ? size : stride, low, high, {}, {}, at);
}
/// Returns the sum of each window; see max_pool for the arguments.
constexpr value sum_pool(value x, integers size, integers stride = {}, integers low = {}, integers high = {},
                         location at = location::current()) {
  return reduce_window(x, monoid::add, size, stride.empty() ? size : stride, low, high, {}, {}, at);
}

/// Returns the mean of each window of a float tensor: the sum of the elements in the window, divided by their number.
/// Padding does not count. A window without elements gives 0. Means of bf16 and f16 are computed as float and rounded
/// once (ops/composite.hpp).
///
/// **Communication.** That of reduce_window. The halos of bf16 and f16 are sent as float.
/// **Example.**
///     auto y = avg_pool(x, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1});
constexpr value avg_pool(value x, integers size, integers stride = {}, integers low = {}, integers high = {},
                         location at = location::current()) {
  if (x.is_valid()) static_cast<void>(detail::has_means(x, "avg_pool", at));
  const detail::one_call call(x.graph(), "avg_pool", {x.id()});
  const auto means = [&](value wide) {
    value result = sum_pool(wide, size, stride, low, high, at);
    if (!result.is_valid() || result.graph()->failed()) return result;
    const auto before = detail::filled(low, x.rank(), 0), after = detail::filled(high, x.rank(), 0);
    std::int64_t whole = 1;  // the elements of a window along dims without padding
    for (int d = 0; d < x.rank(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (before[i] <= 0 && after[i] <= 0) {
        whole *= size[i];
        continue;
      }
      const detail::padded_window w{size[i], stride.empty() ? size[i] : stride[i], before[i], after[i]};
      result = operand(result, at) / operand(detail::elements_in_windows(result, d, x.shape()[d], w, at), at);
    }
    return whole == 1 ? result : operand(result, at) / operand(static_cast<double>(whole), at);
  };
  return detail::rounded_once(at, means, x);
}

/// Repeats every element of `x` factors[d] times along every dim d: nearest-neighbour interpolation to a finer grid.
/// The gradient is a sum_pool.
///
/// **Communication.** Splits do not change. A device receives the elements of other shards that are in its part of the
/// finer grid.
/// **Errors.** At compile time: the number of factors differs from the number of dims; a factor below 1.
/// **Example.**
///     auto fine = upsample(coarse, {1, 2, 2});   // [c,h,w] -> [c,2h,2w]
constexpr value upsample(value x, integers factors, location at = location::current()) {
  if (!x.is_valid()) return {};
  const detail::one_call call(x.graph(), "upsample", {x.id()});
  if (!detail::fit_factors(x, "upsample", factors, at)) return detail::made(-1, x);
  // A window of `factor` places holds one element, wherever the window begins. A dim of extent 0 has no element to
  // repeat, so it is not stretched. Otherwise windows would cover only the padding around it.
  detail::vec<std::int64_t> size, around;
  for (int d = 0; d < x.rank(); ++d) {
    size.push_back(x.shape()[d] == 0 ? 1 : factors[static_cast<std::size_t>(d)]);
    around.push_back(size[d] - 1);
  }
  const integers places(size.data(), size.size()), both(around.data(), around.size());
  const monoid kind = x.type() == dtype::pred ? monoid::or_ : monoid::add;
  return reduce_window(x, kind, places, {}, both, both, places, {}, at);
}

/// Interpolates a float tensor linearly to a grid that is factors[d] times as fine along every dim d. This is
/// multigrid's prolongation and PyTorch's `interpolate(mode="linear", align_corners=False)`. Element i is x at (i +
/// 1/2) / factor - 1/2. Between the centre of the outermost cell and the end of the grid, the result is constant. The
/// gradient is the transposed interpolation. bf16 and f16 are interpolated as float and rounded once
/// (ops/composite.hpp).
///
/// **Communication.** Along a split dim with a factor, each device sends one element (times the extents of the other
/// dims) to both neighbours, by collective_permute. If a device's part of the finer grid does not begin at its part of
/// x, also the messages of upsample. Messages are floats.
/// **Errors.** Those of upsample; a tensor of integers.
/// **Example.**
///     auto fine = interpolate(coarse, {1, 2, 2});   // [c,h,w] -> [c,2h,2w]
constexpr value interpolate(value x, integers factors, location at = location::current()) {
  if (!x.is_valid()) return {};
  const detail::one_call call(x.graph(), "interpolate", {x.id()});
  if (!detail::fit_factors(x, "interpolate", factors, at) || !detail::has_means(x, "interpolate", at)) return detail::made(-1, x);
  detail::graph& g = *x.graph();
  const auto along_dim = [&](value wide, int d) {
    const auto f = factors[static_cast<std::size_t>(d)];
    if (f == 1 || wide.shape()[d] == 0) return wide;
    detail::vec<std::int64_t> only_d(static_cast<std::size_t>(wide.rank()), 1);
    only_d[d] = f;
    const auto finer = [&](value coarse) { return upsample(coarse, integers(only_d.data(), only_d.size()), at); };
    // Computed on the coarse grid, where fewer elements cross the boundaries of shards: the element, and the
    // differences to both neighbours.
    const auto to_neighbour = [&](std::int64_t by) {
      return finer(operand(shift(wide, by, along(d), boundary::edge(), at), at) - operand(wide, at));
    };
    const value middle = finer(wide), below = to_neighbour(-1), above = to_neighbour(1);
    if (g.failed()) return wide;
    const value index = detail::made(g, detail::add_iota(g, dtype::s64, middle.shape(), d, at), dtype::s64, middle.shape());
    const value in_cell = operand(index, at) - operand(operand(index, at) / operand(f, at), at) * operand(f, at);
    const value cell = detail::converted(in_cell, wide.type(), at);
    const value away = (operand(cell, at) + operand(0.5, at)) / operand(static_cast<double>(f), at) - operand(0.5, at);
    return operand(middle, at) + operand(max(operand(away, at), operand(0.0, at)), at) * operand(above, at) -
           operand(min(operand(away, at), operand(0.0, at)), at) * operand(below, at);
  };
  const auto along_all = [&](value wide) {
    for (int d = 0; d < wide.rank() && !g.failed(); ++d) wide = along_dim(wide, d);
    return wide;
  };
  return detail::rounded_once(at, along_all, x);
}

/// Returns the mean of each block of cells of a float tensor. The result is a grid that is factors[d] times as coarse
/// along every dim d: multigrid's restriction. The last block along a dim may have fewer cells. Element types are
/// those of avg_pool. Splits and gradients are those of reduce_window.
///
/// **Communication.** None if no block crosses a boundary between shards; otherwise that of reduce_window.
/// **Errors.** Those of upsample; a tensor of integers.
/// **Example.**
///     auto coarse = downsample(fine, {1, 2, 2});   // [c,h,w] -> [c,h/2,w/2], rounded up
constexpr value downsample(value x, integers factors, location at = location::current()) {
  if (!x.is_valid()) return {};
  const detail::one_call call(x.graph(), "downsample", {x.id()});
  if (!detail::fit_factors(x, "downsample", factors, at) || !detail::has_means(x, "downsample", at)) return detail::made(-1, x);
  detail::vec<std::int64_t> missing;
  for (int d = 0; d < x.rank(); ++d) {
    const auto f = factors[static_cast<std::size_t>(d)], rest = x.shape()[d] % f;
    missing.push_back(rest == 0 ? 0 : f - rest);
  }
  return avg_pool(x, factors, factors, {}, integers(missing.data(), missing.size()), at);
}

}  // namespace gspmd
