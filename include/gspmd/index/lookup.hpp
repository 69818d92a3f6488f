// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/index/gather.hpp"
#include "gspmd/ops/shape.hpp"

/// Rows of a table by index, and sums of rows by index: the common forms of gather and scatter.
///
/// Indices are integers of any type. s32 and s64 are read directly; other types are first converted to s32 or s64,
/// exactly. gather.hpp describes the communication and when results are partial.
namespace gspmd {
namespace detail {

/// The dimension numbers of a lookup along one dim: the dims of the indices replace this dim.
struct row_dims {
  std::int64_t window[max_rank]{}, row[1]{};
  int count = 0;
  index_dims numbers;

  constexpr row_dims(int rank, int dim, int index_rank) {
    row[0] = dim;
    for (int d = 0; d + 1 < rank; ++d) window[count++] = d < dim ? d : d + index_rank;
    numbers.window = {window, static_cast<std::size_t>(count)};
    numbers.collapsed = numbers.cols = row;
    numbers.vector_dim = index_rank;
  }
  row_dims(const row_dims&) = delete;
  row_dims& operator=(const row_dims&) = delete;
};
/// The same for take_along_axis: every other dim of the indices corresponds to the same dim of the tensor.
struct along_dims {
  std::int64_t batch[max_rank]{}, row[1]{};
  int count = 0;
  index_dims numbers;

  constexpr along_dims(int rank, int dim) {
    row[0] = dim;
    for (int d = 0; d < rank; ++d)
      if (d != dim) batch[count++] = d;
    numbers.table_batch = numbers.index_batch = {batch, static_cast<std::size_t>(count)};
    numbers.collapsed = numbers.cols = row;
    numbers.vector_dim = rank;
  }
  along_dims(const along_dims&) = delete;
  along_dims& operator=(const along_dims&) = delete;
};
/// Returns dim `dim` of a tensor, counted from 0. Returns -1 and records an error if the dim does not exist.
constexpr int row_dim(value x, int dim, const char* op, location at) {
  const int d = counted_dim(dim, x.rank());
  if (d >= 0 && d < x.rank()) return d;
  x.graph()->fail(at, op, mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(x.shape()) << "; dims count from 0");
  return -1;
}

}  // namespace detail

/// Returns the elements of `x` along `dim` at `indices`. The dims of the indices replace `dim`. The rule is
/// `[v]d,bs->bsd` for dim 0.
///
/// **Communication.** If `dim` is split, the result is partial. If another dim or a dim of the indices is split, the
/// result is split in the same way.
/// **Example.**
///     take(table, tokens, 0)                                    // moves an index outside to the nearest row
///     take(table, tokens, 0, out_of_range::fill, -1.0)          // returns -1 for an index outside
///     take(table, tokens, 0, out_of_range::error)               // throws gspmd::error for an index outside
constexpr value take(value x, value indices, int dim, out_of_range beyond = out_of_range::clip, detail::written_number fill = 0,
                     location at = location::current()) {
  if (!x.is_valid() || !indices.is_valid()) return {};
  const int d = detail::row_dim(x, dim, "take", at);
  if (d < 0) return detail::made(-1, x);
  const detail::row_dims dims(x.rank(), d, indices.rank());
  detail::extents sizes(x.shape());
  sizes[d] = 1;
  return detail::made(detail::add_gather(*x.graph(), x.id(), indices.id(), dims.numbers,
                                         {sizes.begin(), static_cast<std::size_t>(sizes.count)}, beyond, fill, at),
                      x);
}

/// Returns the rows `ids` of a table [v, ...]: take(table, ids, 0). If the rows of the table are split, only one
/// all_reduce or reduce_scatter of the result is sent. The gradient is scatter_add: each device updates its own rows.
constexpr value embedding(value table, value ids, location at = location::current()) {
  return take(table, ids, 0, out_of_range::clip, 0, at);
}

/// Returns x[i, indices[i, j, k], k] as result[i, j, k], for dim 1. The other dims have the same extents in both
/// tensors, and they are parallel.
constexpr value take_along_axis(value x, value indices, int dim, out_of_range beyond = out_of_range::clip,
                                detail::written_number fill = 0, location at = location::current()) {
  if (!x.is_valid() || !indices.is_valid()) return {};
  const int d = detail::row_dim(x, dim, "take_along_axis", at);
  if (d < 0 || !x.graph()->may_read({x.id(), indices.id()}, at, "take_along_axis")) return detail::made(-1, x);
  if (indices.rank() != x.rank()) {
    x.graph()->fail(at, "take_along_axis", detail::mistake::rank,
                    detail::text("the indices have rank ")
                        << indices.rank() << " and the tensor has rank " << x.rank() << "; they have one rank, or write take");
    return detail::made(-1, x);
  }
  const detail::along_dims dims(x.rank(), d);
  detail::extents sizes(x.shape());
  for (auto& e : sizes) e = 1;
  return detail::made(detail::add_gather(*x.graph(), x.id(), indices.id(), dims.numbers,
                                         {sizes.begin(), static_cast<std::size_t>(sizes.count)}, beyond, fill, at),
                      x);
}

/// Returns `x` with `updates` added to its elements along `dim` at `indices`, or combined with them by `kind`. The
/// updates have the shape of take(x, indices, dim). An index outside is skipped, or handled by `beyond`.
///
/// **Example.**
///     scatter_add(x, rows, updates, 0)
constexpr value scatter_add(value x, value indices, value updates, int dim = 0, monoid kind = monoid::add,
                            out_of_range beyond = out_of_range::fill, location at = location::current()) {
  if (!x.is_valid() || !indices.is_valid() || !updates.is_valid()) return {};
  const detail::one_call call(x.graph(), "scatter_add", {x.id(), indices.id(), updates.id()});
  const int d = detail::row_dim(x, dim, "scatter_add", at);
  if (d < 0) return detail::made(-1, x);
  const detail::row_dims dims(x.rank(), d, indices.rank());
  if (updates.type() != x.type()) {
    x.graph()->fail(at, "scatter_add", detail::mistake::type,
                    detail::text("the updates are ") << detail::name_of(updates.type()) << " and the tensor is "
                                                     << detail::name_of(x.type()) << "; convert one tensor");
    return detail::made(-1, x);
  }
  const int id = detail::add_scatter(*x.graph(), indices.id(), updates.id(), x.shape(), dims.numbers, kind, beyond, at);
  return detail::combined(x, id, kind, at);
}

/// Returns the sums of the rows of `data` by segment, or their reductions by `kind`. Row s of the result, of `count`
/// rows, combines all data[i] with ids[i] = s. The dims of `ids` are the first dims of `data`. A number outside of 0
/// to count - 1 is skipped, or handled by `beyond`. A segment without rows is the identity of the monoid. If the rows
/// are split, each device adds up its own rows, and the result is partial.
///
/// **Example.**
///     segment_sum(data, ids, 10)        segment_sum(data, ids, 10, monoid::max)
constexpr value segment_sum(value data, value ids, std::int64_t count, monoid kind = monoid::add,
                            out_of_range beyond = out_of_range::fill, location at = location::current()) {
  if (!data.is_valid() || !ids.is_valid()) return {};
  const detail::one_call call(data.graph(), "segment_sum", {data.id(), ids.id()});
  auto& g = *data.graph();
  detail::extents shape;
  shape.push_back(count);
  for (int d = ids.rank(); d < data.rank(); ++d) shape.push_back(data.shape()[d]);
  const detail::row_dims dims(shape.count, 0, ids.rank());
  const int id = count < 0 ? g.fail(at, "segment_sum", detail::mistake::size,
                                    detail::text("the number of segments is ") << count << "; it is at least 0")
                           : detail::add_scatter(g, ids.id(), data.id(), shape, dims.numbers, kind, beyond, at);
  return detail::made(g, id, data.type(), shape);
}

/// Returns the number of times that each number from 0 to count - 1 occurs in `bins` (s32, s64, u32 or u64, of any
/// shape). The result is [count], with the type of `bins`. Numbers outside are not counted.
///
/// **Communication.** If the bins are split, each device counts its own bins, and one all_reduce of [count] follows.
constexpr value histogram(value bins, std::int64_t count, location at = location::current()) {
  if (!bins.is_valid()) return {};
  const detail::one_call call(bins.graph(), "histogram", {bins.id()});
  auto& g = *bins.graph();
  if (!detail::may_be_index(bins.type()) || detail::bytes_of(bins.type()) < 4) {
    g.fail(at, "histogram", detail::mistake::type,
           detail::text("the bins are ") << detail::name_of(bins.type())
                                         << (detail::may_be_index(bins.type()) ? ", and so would the counts be; write "
                                                                                 "cast<std::int32_t>(bins)"
                                                                               : "; they are s32, s64, u32 or u64: "
                                                                                 "cast<std::int32_t>(floor(x))"));
    return detail::made(g, -1, bins.type(), detail::extents(1, count));
  }
  const value ones{&g, detail::add_constant(g, bins.type(), detail::extents(bins.shape()), 1, 1, at)};
  return segment_sum(ones, bins, count, monoid::add, out_of_range::fill, at);
}

}  // namespace gspmd
