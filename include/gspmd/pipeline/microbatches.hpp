// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/ops/shape.hpp"

namespace gspmd {

/// A batch as `count` microbatches: [B, ...] as [count, B/count, ...], of which microbatch m has the rows m, m + count and so on. So a batch
/// that is split over devices is one whose microbatches are split over them, and nothing is sent (GSPMD 3.3: data parallelism inside of
/// microbatches). Errors: a dim 0 that is no multiple of `count`.
///
///     auto xs = microbatches(x, 8);                            // [64,512] -> [8,8,512]
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

/// The batch of which these are the microbatches: [count, b, ...] as [count * b, ...]. Nothing is sent.
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
