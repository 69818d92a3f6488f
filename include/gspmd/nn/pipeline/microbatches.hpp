// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/ops/shape.hpp"

namespace gspmd {

/// Returns a batch as `count` microbatches. Microbatch m has the rows m, m + count, m + 2 count and so on.
///
/// **Shapes.** [B, ...] -> [count, B/count, ...]
/// **Communication.** None. If the batch is split over devices, each microbatch is split over the same devices.
/// **Errors.** Dim 0 is not a multiple of `count`.
/// **Example.**
///
///     auto xs = microbatches(x, 8);                            // [64,512] -> [8,8,512]
///
/// **Source.** GSPMD 3.3 (data parallelism within microbatches).
constexpr value microbatches(value x, std::int64_t count, location at = location::current()) {
  if (!x.is_valid()) return {};
  if (x.rank() == 0 || count < 1 || x.shape()[0] % count != 0)
    return detail::made(x.graph()->fail(at, "microbatches", detail::mistake::extent,
                                        detail::text("a batch ") << detail::shape_text(x.shape()) << " is not cut into " << count
                                                                 << " equal microbatches along dim 0; pad it, or give a divisor"),
                        x);
  detail::vec<std::int64_t> shape, order;
  shape.push_back(x.shape()[0] / count);
  shape.push_back(count);
  for (int d = 1; d < x.rank(); ++d) shape.push_back(x.shape()[d]);
  for (int d = 0; d <= x.rank(); ++d) order.push_back(d < 2 ? 1 - d : d);
  const auto list = [](const detail::vec<std::int64_t>& v) { return integers(v.data(), v.size()); };
  return transpose(reshape(x, list(shape), at), list(order), at);
}

/// Returns the batch that `microbatches` cut into `xs`. It is the inverse of `microbatches`.
///
/// **Shapes.** [count, b, ...] -> [count * b, ...]
/// **Communication.** None.
/// **Errors.** Fewer than two dims.
/// **Example.**
///
///     auto y = whole_batch(pipeline<"stage">(layer, gpipe{4, 8})(weights, microbatches(x, 8)));
constexpr value whole_batch(value xs, location at = location::current()) {
  if (!xs.is_valid()) return {};
  if (xs.rank() < 2)
    return detail::made(xs.graph()->fail(at, "whole_batch", detail::mistake::rank,
                                         detail::text("there are no microbatches in ")
                                             << detail::shape_text(xs.shape()) << "; give [microbatches, rows, ...]"),
                        xs);
  detail::vec<std::int64_t> shape, order;
  shape.push_back(xs.shape()[0] * xs.shape()[1]);
  for (int d = 2; d < xs.rank(); ++d) shape.push_back(xs.shape()[d]);
  for (int d = 0; d < xs.rank(); ++d) order.push_back(d < 2 ? 1 - d : d);
  const auto list = [](const detail::vec<std::int64_t>& v) { return integers(v.data(), v.size()); };
  return reshape(transpose(xs, list(order), at), list(shape), at);
}

}  // namespace gspmd
