// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>

#include "gspmd/detail/ops/rows.hpp"
#include "gspmd/detail/support/callable.hpp"
#include "gspmd/ops/traced_body.hpp"

namespace gspmd {
namespace detail {

/// True for a tuple or pair of the carried values and a row.
template <class Result, class Carry>
inline constexpr bool is_scan_result = false;
template <class Carry, class Row>
inline constexpr bool is_scan_result<std::tuple<Carry, Row>, Carry> = is_values<Row>;
template <class Carry, class Row>
inline constexpr bool is_scan_result<std::pair<Carry, Row>, Carry> = is_values<Row>;

/// stacked_stand_in returns a placeholder for the stacked rows of a refused scan, with the number of rows as dim 0.
/// row_stand_in returns a placeholder for one row of `x`, without dim 0.
constexpr value stacked_stand_in(value row, std::int64_t rows) {
  extents shape = row.shape();
  if (shape.count < max_rank) shape.insert(0, rows);
  return row.is_valid() ? value(row.graph(), row.graph()->add_stand_in(row.type(), shape)) : row;
}
constexpr value row_stand_in(value x) {
  extents shape;
  for (int d = 1; d < x.rank(); ++d) shape.push_back(x.shape()[d]);
  return x.is_valid() ? value(x.graph(), x.graph()->add_stand_in(x.type(), shape)) : x;
}

/// Traces the loop of scan and stacks its rows. If the body returns the sum of the carried value and the row twice,
/// init 0 and xs {1, 2, 3} give 6 and {1, 3, 6}.
template <class Body, class Carry, class Xs>
constexpr auto scan_rows(Body& body, const Carry& init, const Xs& xs, location at) {
  using row_type = std::tuple_element_t<1, typename call_with<Body&, const Carry&, const Xs&>::result>;
  using result_type = std::tuple<Carry, row_type>;
  graph* g = graph_of(init, xs);
  const auto rows_of = leaves_of(xs);
  std::int64_t trips = 0;
  bool fits = g != nullptr;
  if (fits) {
    for (const auto& x : rows_of) {
      fits = fits && x.rank() > 0 && rows_of[0].rank() > 0 && x.shape()[0] == rows_of[0].shape()[0];
      if (!fits)
        g->fail(at, "scan", mistake::region,
                text("iterates over the rows of ") << shape_text(rows_of[0].shape()) << " and " << shape_text(x.shape())
                                                   << "; all must have dim 0, and it must be equal");
    }
    if (fits) trips = rows_of[0].shape()[0];
  }
  const int loop = fits ? open_loop(*g, trips, at) : -1;
  Xs row = xs;
  if (loop < 0) {
    if (g != nullptr) for_each_leaf(row, [](value& v) { v = row_stand_in(v); });
    auto [last, stacked] = body(init, std::as_const(row));
    if (g != nullptr) for_each_leaf(stacked, [&](value& v) { v = stacked_stand_in(v, trips); });
    return result_type{last, stacked};
  }
  const open_body open{*g, loop, "scan", at};
  const Carry carried = open.carry(init);
  for_each_leaf(row, [&](value& v) { v = {g, add_dynamic_index(*g, v.id(), loop, at)}; });
  const result_type next = body(std::as_const(carried), std::as_const(row));
  Carry last = open.close(carried, std::get<0>(next));
  row_type stacked = std::get<1>(next);
  const int outside = g->nodes[static_cast<std::size_t>(loop)].region;
  for_each_leaf(stacked, [&](value& v) {
    if (!check_body(*g, "scan", at, {v}, {v}, "the row")) {
      v = stacked_stand_in(v, trips);
      return;
    }
    extents shape = v.shape();
    if (shape.count == max_rank) {
      g->fail(at, "scan", mistake::rank, "stacks rows of 32 dims along a new one; a tensor has at most 32");
      return;
    }
    shape.insert(0, trips);
    int buffer = -1;
    {
      const region_scope before(*g, outside);
      buffer = add_constant(*g, v.type(), shape, 0, 0, at);
    }
    const int held = add_carry(*g, buffer, at);
    v = {g, add_loop_result(*g, held, add_dynamic_update<set_row_op>(*g, held, v.id(), loop, at), at)};
  });
  g->open_region = outside;
  return result_type{last, stacked};
}

}  // namespace detail

/// Runs `body` over the rows of `xs`. body(carried, x) returns a tuple of the carried values of the next iteration and
/// of a row of the result. scan returns the last carried values and the rows, stacked along a new dim 0. `xs`, `init`
/// and the row of the result are each a value or a group of values. All values of `xs` have the same extent of dim 0.
/// Shardings, costs and gradients are those of fori_loop.
///
/// **Communication.** All devices process the rows together. If dim 0 of `xs` is split, the planner takes the cheaper
/// of two methods. The first reshards `xs` once before the loop by all_to_all, so that another dim is split. The
/// second leaves `xs` as it is. Then each iteration sends the row from its device to all devices, by a reduction of
/// one row. Write a `reshard` before the scan, or allow_replication, to gather `xs`. If the stacked rows are to be
/// split along dim 0, each device writes the rows of its shard.
/// **Errors.** The body does not return a tuple of carried values and a row; the values of `xs` have different extents
/// of dim 0, or rank 0.
/// **Example.**
///     const auto cell = [&](value h, value x) {
///       auto y = tanh(einsum<"bd,de->be">(h, w) + x);
///       return std::tuple{y, y};
///     };
///     auto [h, ys] = scan(cell, h0, xs);
template <class Body, class Carry, class Xs>
constexpr auto scan(Body&& body, const Carry& init, const Xs& xs, location at = location::current()) {
  using call = detail::call_with<Body&, const Carry&, const Xs&>;
  if constexpr (!detail::is_values<Carry> || !detail::is_values<Xs>) {
    static_assert(detail::written_so<Body>, "gspmd: scan: init and xs are values or groups of values: scan(body, init, xs)");
    return detail::unlooped(init, xs);
  } else if constexpr (call::refuses) {
    static_assert(detail::written_so<Body>,
                  "gspmd: scan: the body is called as body(carried, x): it takes the carried values, then a row of xs");
    return detail::unlooped(init, xs);
  } else if constexpr (!call::compiles) {
    return detail::unlooped(init, xs);  // the compiler has reported the mistake in the body
  } else if constexpr (!detail::is_scan_result<typename call::result, Carry>) {
    static_assert(detail::written_so<Body>,
                  "gspmd: scan: the body must return a tuple of the carried values and a row of the result");
    return detail::unlooped(init, xs);
  } else {
    return detail::scan_rows(body, init, xs, at);
  }
}

}  // namespace gspmd
