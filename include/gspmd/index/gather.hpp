// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/concatenate.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/ops/reshape.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/index/detail/gather_op.hpp"
#include "gspmd/index/detail/scatter_op.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/integers.hpp"

/// Gather and scatter with all dimension numbers of StableHLO, and slices whose starts the program computes.
/// index/lookup.hpp has simpler functions, which are enough for most programs.
namespace gspmd {

/// The dims of tensor, indices and result that correspond, with the names of StableHLO.
struct gather_dims {
  integers offset_dims{}, collapsed_slice_dims{}, operand_batching_dims{}, start_indices_batching_dims{}, start_index_map{};
  std::int64_t index_vector_dim = 0;
};
/// The same for the updates of a scatter.
struct scatter_dims {
  integers update_window_dims{}, inserted_window_dims{}, input_batching_dims{}, scatter_indices_batching_dims{},
      scatter_dims_to_operand_dims{};
  std::int64_t index_vector_dim = 0;
};

namespace detail {

constexpr index_dims numbers_of(const gather_dims& d) {
  return {d.offset_dims,     d.collapsed_slice_dims, d.operand_batching_dims, d.start_indices_batching_dims,
          d.start_index_map, d.index_vector_dim};
}
constexpr index_dims numbers_of(const scatter_dims& d) {
  return {d.update_window_dims,           d.inserted_window_dims, d.input_batching_dims, d.scatter_indices_batching_dims,
          d.scatter_dims_to_operand_dims, d.index_vector_dim};
}
/// Returns `x` combined with the scattered updates.
constexpr value combined(value x, int scattered, monoid kind, location at) {
  if (scattered < 0) return made(-1, x);
  if (kind == monoid::add && is_zero(x.node())) return {x.graph(), scattered};
  return made(add_elementwise(*x.graph(), operator_of(kind), {x.id(), scattered}, at), x);
}
/// Returns the starts of a slice as one tensor of s64. Returns -1 and records an error if a start is not a scalar
/// integer.
constexpr int start_vector(graph& g, detail::span<const value> starts, const extents& shape, const char* op, location at) {
  if (starts.size() != static_cast<std::size_t>(shape.count))
    return g.fail(at, op, mistake::operand_count,
                  text("has ") << static_cast<std::int64_t>(starts.size()) << " starts for the dims of " << shape_text(shape)
                               << "; there is one for each dim");
  vec<int> ids;
  for (const auto& s : starts) {
    if (!s.is_valid()) return -1;
    if (s.rank() != 0 || !may_be_index(s.type()))
      return g.fail(at, op, mistake::type,
                    text("a start is ") << name_of(s.type()) << shape_text(s.shape()) << "; it is one integer, of rank 0");
    int id = as_index(g, s.id(), at);
    if (g.nodes[static_cast<std::size_t>(id)].type != dtype::s64) id = add_elementwise(g, code_of<cast_op>, {id}, at, dtype::s64);
    ids.push_back(add_reshape(g, id, extents(1, 1), at));
  }
  return ids.size() == 1 ? ids[0] : add_concatenate(g, detail::span<const int>(ids.data(), ids.size()), 0, at);
}
/// The list of all dims.
struct all_dims {
  std::int64_t of[max_rank]{};
  constexpr all_dims() {
    for (int d = 0; d < max_rank; ++d) of[d] = d;
  }
  [[nodiscard]] constexpr detail::span<const std::int64_t> first(int count) const {
    return {of, static_cast<std::size_t>(count)};
  }
};

}  // namespace detail

/// Returns the slices of `x` that `indices` (integers) select; StableHLO's gather. A slice has `slice_sizes` elements
/// along the dims of `x`. Column k of the indices is its start along dim start_index_map[k]. The result has the dims
/// of the indices except index_vector_dim. At offset_dims it has the dims of a slice that are neither collapsed nor
/// batching. The gradient with respect to `x` is scatter_add.
///
/// `beyond` handles a slice that is not inside of `x`, in the same way on every mesh. clip moves it to the nearest
/// slice that is inside; fill returns `fill`; error throws gspmd::error when the program runs.
///
/// **Shapes.** Dims of the indices, batching dims and dims that slices take whole are parallel: their shards give
/// shards.
/// **Communication.** If another dim of `x` is split, every device looks up the elements of its part, and the result
/// is partial over these axes. An all_reduce or reduce_scatter follows if a user requires the sum. `x` is never
/// gathered.
/// **Errors.** When compiling, or as gspmd::error at run time: indices that are not integers, a slice larger than its
/// dim, dims that do not exist or occur twice, batching dims with different extents.
/// **Example.**
///     gather(x, i, {.offset_dims = {1}, .collapsed_slice_dims = {0}, .start_index_map = {0}, .index_vector_dim = 1},
///            {1, x.shape()[1]})
/// **Source.** GSPMD, section 3.2.
constexpr value gather(value x, value indices, const gather_dims& dims, integers slice_sizes,
                       out_of_range beyond = out_of_range::clip, detail::written_number fill = 0,
                       location at = location::current()) {
  if (!x.is_valid() || !indices.is_valid()) return {};
  return detail::made(
      detail::add_gather(*x.graph(), x.id(), indices.id(), detail::numbers_of(dims), slice_sizes, beyond, fill, at), x);
}

/// Returns `x` with every slice of `updates` combined by `kind` into the slice that `indices` (integers) select;
/// StableHLO's scatter. `beyond` handles a slice that is not inside of `x`: fill skips it, clip moves it to the
/// nearest slice that is inside, error reports it. There are gradients with respect to `x` and `updates`.
///
/// If several updates concern one element, they are combined in row-major order of the indices. A device that has all
/// updates of its part combines them with `x` directly, in place if `x` has no other user. Otherwise each device
/// starts from the identity. The collective then combines the results of the devices in its order, and finally `x` is
/// combined with them. Integers have the same bits on every mesh. Floats are rounded in this order.
///
/// **Communication.** A device writes the updates of its part of `x`, and `x` keeps its split. If the updates are
/// split along a dim that `x` does not share, every device adds up its own updates. An all_reduce or reduce_scatter of
/// the result follows.
/// **Example.**
///     scatter(x, i, u, {.update_window_dims = {1}, .inserted_window_dims = {0}, .scatter_dims_to_operand_dims = {0},
///                       .index_vector_dim = 1}, monoid::add)
constexpr value scatter(value x, value indices, value updates, const scatter_dims& dims, monoid kind,
                        out_of_range beyond = out_of_range::fill, location at = location::current()) {
  if (!x.is_valid() || !indices.is_valid() || !updates.is_valid()) return {};
  const detail::one_call call(x.graph(), "scatter", {x.id(), indices.id(), updates.id()});
  auto& g = *x.graph();
  if (x.type() != updates.type()) {
    g.fail(at, "scatter", detail::mistake::type,
           detail::text("the updates are ") << detail::name_of(updates.type()) << " and the tensor is "
                                            << detail::name_of(x.type()) << "; convert one tensor");
    return detail::made(-1, x);
  }
  const int scattered = detail::add_scatter(g, indices.id(), updates.id(), x.shape(), detail::numbers_of(dims), kind, beyond, at);
  return detail::combined(x, scattered, kind, at);
}

/// Overwrites the slices instead of combining them. If several updates concern one element, the last in row-major
/// order of the indices remains, on every mesh. Because the order matters, updates that are split along a dim that `x`
/// does not share are refused. Reshard these updates, or write allow_replication around the call.
constexpr value scatter(value x, value indices, value updates, const scatter_dims& dims, out_of_range beyond = out_of_range::fill,
                        location at = location::current()) {
  if (!x.is_valid() || !indices.is_valid() || !updates.is_valid()) return {};
  return detail::made(
      detail::add_scatter_set(*x.graph(), x.id(), indices.id(), updates.id(), detail::numbers_of(dims), beyond, at), x);
}

/// Returns `sizes` elements of `x` from `starts`, which has one integer of rank 0 for each dim, computed by the
/// program. If the slice is not inside of `x`, a start is moved to the nearest valid start, as in StableHLO.
///
/// **Communication.** A dim that is taken whole keeps its split. If another dim is split, each device contributes its
/// elements and the result is partial, so only the slice is sent.
/// **Example.**
///     dynamic_slice(x, std::array{row, zero}, {4, 512})
constexpr value dynamic_slice(value x, detail::span<const value> starts, integers sizes, location at = location::current()) {
  if (!x.is_valid()) return {};
  const detail::one_call call(x.graph(), "dynamic_slice", {x.id()});
  auto& g = *x.graph();
  constexpr detail::all_dims all;
  const int start = detail::start_vector(g, starts, x.shape(), "dynamic_slice", at);
  if (x.rank() == 0) return x;
  const auto dims = all.first(x.rank());
  return detail::made(
      start < 0 ? -1 : detail::add_gather(g, x.id(), start, {.window = dims, .cols = dims}, sizes, out_of_range::clip, 0, at), x);
}

/// Returns `x` with `update` written at `starts`; see dynamic_slice for starts. Each device writes its part of `x`,
/// and `x` keeps its split. The write is in place if `x` has no other user. An update that is split along a dim along
/// which it is smaller than `x` is gathered first.
constexpr value dynamic_update_slice(value x, value update, detail::span<const value> starts, location at = location::current()) {
  if (!x.is_valid() || !update.is_valid()) return {};
  const detail::one_call call(x.graph(), "dynamic_update_slice", {x.id(), update.id()});
  auto& g = *x.graph();
  constexpr detail::all_dims all;
  const int start = detail::start_vector(g, starts, x.shape(), "dynamic_update_slice", at);
  if (x.rank() == 0) return update;
  const auto dims = all.first(x.rank());
  const int id =
      start < 0 ? -1
                : detail::add_scatter_set(g, x.id(), start, update.id(), {.window = dims, .cols = dims}, out_of_range::clip, at);
  if (id >= 0) g.nodes[static_cast<std::size_t>(id)].allow_replication = true;  // allows to gather the update
  return detail::made(id, x);
}

}  // namespace gspmd
