// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "gspmd/block_cyclic/deal.hpp"
#include "gspmd/index/gather.hpp"
#include "gspmd/index/lookup.hpp"
#include "gspmd/index/order.hpp"
#include "gspmd/lu.hpp"
#include "gspmd/ops/loops.hpp"

/// Elimination of one large general matrix on a grid of devices.
namespace gspmd {

/// solve (linalg.hpp) of one matrix over many devices: x of a x = b, a is [n, n] of any extent, and b and x are [n, k]; float, double, c64 or c128.
/// A matrix without a pivot gives infinities and NaNs.
///
/// The matrix is dealt and padded as by cholesky (block_cyclic/cholesky.hpp), with b as further columns, and eliminated strip by strip. Pivots of
/// a block column are found by a tournament: each row of the grid eliminates its own rows of the panel with partial pivoting, and the
/// rows that it finds meet in a second elimination (Grigori, Demmel and Xiang, CALU: a communication optimal LU factorization algorithm, 2011);
/// on one row of devices this is partial pivoting. An element of l may be larger than 1.
///
/// Nothing is gathered but the square of a strip, (n / strips)^2 elements. With s strips a device holds about 2 n^2 / P elements, its columns of a
/// strip's rows, n^2 / (s C), and the squares, n^2 / s. For each block column it sends the panel, the rows that move and those that
/// come in their place, as ScaLAPACK's pdgesv; (2 / 3 + 1 / s) n^3 / P flops. Gradients keep each strip for each of its block columns. Errors:
/// those of cholesky over a grid, and a b that does not fit.
///
///     const auto x = solve(a, b, {.rows = "x", .columns = "y", .strips = 8});
constexpr value solve(value a, value b, matrix_grid grid, location at = location::current());

/// The same for a matrix that is dealt already (deal_matrix): t is [R, C, p, q], b and x are [n, k]. Errors: those of
/// deal_matrix, and a b that does not fit.
///
///     const auto x = solve_dealt(t, b, grid);
constexpr value solve_dealt(value t, value b, matrix_grid grid, location at = location::current());

namespace detail {

/// The steps on a grid. Rows of the matrix that is left are [R, p, ...] as they are dealt, or [R p, ...], whose index is called a place.
class lu_on_grid {
 public:
  constexpr lu_on_grid(const dealt_blocks_of& grid, location at)
      : grid_(grid), at_(at), rows_(grid.rows()), columns_(grid.columns()), block_(grid.block()) {}

  /// x for dealt blocks of a and of b, which is as wide as the grid has rounds of blocks: [n, C, columns of b / C].
  [[nodiscard]] constexpr value solve(value a, value b) const {
    const extents s = a.shape();
    const std::int64_t rounds = s[2] * rows_ / grid_.round(), count = rounds < grid_.strips() ? rounds : grid_.strips();
    value left = einsum<"rcpq->rpcq">(grid_.on_grid(concatenate({a, b}, 3, at_)));  // what is not eliminated
    std::vector<strip_of_rows> all;
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t width = rounds * (k + 1) / count * grid_.round() - rounds * k / count * grid_.round();
      all.push_back(eliminate(left, width));
    }
    value x = all.back().beside;  // of the last strip: its rows of b
    for (std::int64_t k = count - 1; k >= 0; --k) {
      const strip_of_rows& strip = all[static_cast<std::size_t>(k)];
      const std::int64_t width = strip.square.shape()[0], others = strip.beside.shape()[2] - b.shape()[3];
      const value sides = slice(strip.beside, {0, 0, others}, {width, columns_, others + b.shape()[3]}, {}, at_);
      const value right = k + 1 == count
                              ? sides
                              : sides - product_of_columns(slice(strip.beside, {0, 0, 0}, {width, columns_, others}, {}, at_), x);
      const value own = solved(strip.square, right, false);
      x = k + 1 == count ? own : concatenate({own, x}, 0, at_);
    }
    return x;
  }

 private:
  /// The rows that a strip of columns eliminates: its square, of both factors, and what is right of it, [width, C, ...].
  struct strip_of_rows {
    value square, beside;
  };

  /// Takes a strip's columns and rows away from what is left.
  [[nodiscard]] constexpr strip_of_rows eliminate(value& left, std::int64_t width) const {
    const extents s = left.shape();
    const std::int64_t p = s[1], q = s[3], n = rows_ * p, top = width / rows_, wide = width / columns_;
    const value first = reshape(slice(left, {0, 0, 0, 0}, {rows_, p, columns_, wide}, {}, at_), {n, columns_, wide}, at_);
    const value others = reshape(slice(left, {0, 0, 0, wide}, {rows_, p, columns_, q}, {}, at_), {n, columns_, q - wide}, at_);
    const auto [strip, order, touched] = factor_strip(by_rows(first));
    const value places = places_of(width, p);
    const value square = in_order(take(strip, places, 0, out_of_range::clip, 0, at_));
    // The strip's rows of u, each device some columns; and the rows that go where these come from, which may be on any row of devices.
    const value own = take(others, take(order, places, 0, out_of_range::clip, 0, at_), 0, out_of_range::clip, 0, at_);
    const value beside = solved(square, own, true);
    const value displaced = take(others, take(order, touched, 0, out_of_range::clip, 0, at_), 0, out_of_range::clip, 0, at_);
    const value exchanged = with_rows(by_rows(others), touched, grid_.split_as(displaced, -1, 1));
    const auto below = [&](value x, std::int64_t c) {
      return slice(reshape(x, {rows_, p, columns_, c}, at_), {0, top, 0, 0}, {rows_, p, columns_, c}, {}, at_);
    };
    // Rows of the strip as its columns are dealt.
    const value dealt =
        reshape(einsum<"qctdv->cqtdv">(reshape(beside, {wide / block_, columns_, block_, columns_, q - wide}, at_)),
                {columns_, wide, columns_, q - wide}, at_);
    if (p > top) left = below(exchanged, q - wide) - einsum<"rpcx,cxdv->rpdv">(below(strip, wide), dealt);
    return {square, beside};
  }

  /// A strip's columns, eliminated; the order of the rows; and the places to which rows from its top went.
  [[nodiscard]] constexpr std::tuple<value, value, value> factor_strip(value strip) const {
    const extents s = strip.shape();
    const std::int64_t n = s[0], p = n / rows_, width = s[2], b = block_, count = width * columns_ / b;
    const auto body = [&](value k, value x, value order, value touched) {
      const value zero = k * std::int64_t{0};
      const auto row = grid_.place_of(k, rows_), column = grid_.place_of(k, columns_);
      const value begin = row.part * p + row.first, done = k * b;
      const value number = reshape(grid_.global_index({rows_, p, b}, 0, 1), {n, b}, at_);  // of the row, in the matrix
      const value panel =
          by_rows(reshape(dynamic_slice(x, std::array{zero, column.part, column.first}, {n, 1, b}, at_), {n, b}, at_));
      const value active = select(number < done, 0.0, panel);
      const auto [factors, pivots] = tournament(active, row.part);

      // Pivots go to the top, and rows from there to the places of pivots that were not there.
      const value own = begin + iota<std::int64_t>(x, {b}, 0, at_);
      const value stays = logical_and(pivots >= begin, pivots < begin + b);
      const value pivot_of_column = broadcast_in_dim(pivots, {b, b}, {0}, at_),
                  own_of_row = broadcast_in_dim(own, {b, b}, {1}, at_);
      const value is_chosen = reduce(convert<std::int64_t>(equal(pivot_of_column, own_of_row)), monoid::maximum, {0}, at_);
      const value turn_of_place = cumsum(convert<std::int64_t>(logical_not(stays)), 0, {}, at_);
      const value turn_of_row = cumsum(std::int64_t{1} - is_chosen, 0, {}, at_);
      const value meets =
          logical_and(equal(broadcast_in_dim(turn_of_place, {b, b}, {0}, at_), broadcast_in_dim(turn_of_row, {b, b}, {1}, at_)),
                      equal(broadcast_in_dim(is_chosen, {b, b}, {1}, at_), std::int64_t{0}));
      const value displaced = sum(select(meets, own_of_row, own_of_row * std::int64_t{0}), {1}, at_);
      const value outside = select(stays, own * std::int64_t{0} + n, pivots);
      const value to = concatenate({own, outside}, 0, at_), from = concatenate({pivots, displaced}, 0, at_);

      const value moved = grid_.split_as(take(x, from, 0, out_of_range::clip, 0, at_), -1, 1);
      const value head = slice(moved, {0, 0, 0}, {b, columns_, width}, {}, at_);
      const value is_behind = grid_.global_index({b, columns_, width}, 1, 2) >= done + b;
      const value upper = select(is_behind, solved(factors, head, true), 0.0);
      const value exchanged = with_rows(
          x, to,
          concatenate({select(is_behind, upper, head), slice(moved, {b, 0, 0}, {2 * b, columns_, width}, {}, at_)}, 0, at_));

      const value by_columns = triangular_solve(factors, einsum<"nb->bn">(active), {.lower = false, .transposed = true}, at_);
      const value lower = by_rows(einsum<"bn->nb">(by_columns));
      const value of_displaced = grid_.split_as(take(lower, displaced, 0, out_of_range::clip, 0, at_), -1, -1);
      const value column_of_l = with_rows(lower, to, concatenate({factors, of_displaced}, 0, at_));
      const value below = select(number < done + b, 0.0, column_of_l);
      const value next = exchanged - einsum<"nb,bcv->ncv">(below, upper);
      const value own_columns = reshape(select(number < done, panel, column_of_l), {n, 1, b}, at_);
      return std::tuple{dynamic_update_slice(next, own_columns, std::array{zero, column.part, column.first}, at_),
                        with_rows(order, to, take(order, from, 0, out_of_range::clip, 0, at_)),
                        dynamic_update_slice(touched, outside, std::array{done}, at_)};
    };
    const value none = iota<std::int64_t>(strip, {width * columns_}, 0, at_) * std::int64_t{0} + n;
    return fori_loop(trip_count(count, at_), body, strip, iota<std::int64_t>(strip, {n}, 0, at_), none);
  }

  /// The factors of the pivots' rows of a panel, [b, b], and their places, [b]. Rows that are done are zeros, and those of `first` are not all
  /// done. Among zeros the elimination takes the first row: active rows stand before the others, and the rows of the grid that have some too.
  [[nodiscard]] constexpr std::pair<value, value> tournament(value panel, value first) const {
    const extents s = panel.shape();
    const std::int64_t n = s[0], p = n / rows_, b = block_;
    const value flipped = reverse(reshape(panel, {rows_, p, b}, at_), {1}, at_);
    const value found = convert<std::int64_t>(slice(order_of(grid_.split_as(flipped, 0, -1)), {0, 0}, {rows_, b}, {}, at_));
    const value own_rows =
        take_along(flipped, broadcast_in_dim(found, {rows_, b, b}, {0, 1}, at_), 1, out_of_range::clip, 0, at_);
    const value own_places = iota<std::int64_t>(panel, {rows_, b}, 0, at_) * p + (p - 1) - found;
    const value turn = (iota<std::int64_t>(panel, {rows_}, 0, at_) + first) % rows_;
    const auto meet = [&](value x, std::int64_t columns) {
      const value all = take(grid_.split_as(x, -1, -1), turn, 0, out_of_range::clip, 0, at_);
      return columns == 0 ? reshape(all, {rows_ * b}, at_) : reshape(all, {rows_ * b, columns}, at_);
    };
    const value candidates = meet(own_places, 0), rows = meet(grid_.split_as(own_rows, 0, -1), b);
    const value best = convert<std::int64_t>(slice(order_of(rows), {0}, {b}, {}, at_));
    const auto [factors, order] = lu(take(rows, best, 0, out_of_range::clip, 0, at_), at_);
    const value pivots =
        take(take(candidates, best, 0, out_of_range::clip, 0, at_), convert<std::int64_t>(order), 0, out_of_range::clip, 0, at_);
    return {factors, pivots};
  }
  /// The order of rows by elimination of panels [..., rows, columns].
  [[nodiscard]] constexpr value order_of(value panels) const {
    auto& g = *panels.graph();
    extents shape = panels.shape();
    shape.pop_back();
    const int id = add_lu(g, panels.id(), at_, true);
    return made(g, id < 0 ? -1 : id + 1, dtype::s32, shape);
  }
  /// x [w, C, v] by the square's lower factor, whose diagonal is ones, or by the upper one.
  [[nodiscard]] constexpr value solved(value square, value x, bool lower) const {
    const extents s = x.shape();
    const value flat = reshape(x, {s[0], s[1] * s[2]}, at_);
    return reshape(triangular_solve(square, flat, {.lower = lower, .unit_diagonal = lower}, at_), {s[0], s[1], s[2]}, at_);
  }
  /// [w, C, v] times rows [C v, C, k], which are whole on every device before they are dealt.
  [[nodiscard]] constexpr value product_of_columns(value a, value x) const {
    const extents s = a.shape(), of_x = x.shape();
    const value whole = grid_.split_as(reshape(x, {s[2] / block_, columns_, block_, of_x[1] * of_x[2]}, at_), -1, -1);
    const value dealt = reshape(einsum<"qctk->cqtk">(whole), {columns_, s[2], of_x[1] * of_x[2]}, at_);
    return reshape(einsum<"wcv,cvk->wk">(a, dealt), {s[0], of_x[1], of_x[2]}, at_);
  }
  /// The square of a strip, [w, C, w / C], with its columns in order, on every device.
  [[nodiscard]] constexpr value in_order(value square) const {
    const extents s = square.shape();
    const value cut = reshape(square, {s[0], columns_, s[2] / block_, block_}, at_);
    return reshape(einsum<"wcqt->wqct">(grid_.split_as(cut, -1, -1)), {s[0], s[0]}, at_);
  }
  /// Where the first rows of the matrix that is left lie.
  [[nodiscard]] constexpr value places_of(std::int64_t count, std::int64_t p) const {
    const value i = iota<std::int64_t>(grid_.like(), {count}, 0, at_), k = i / block_;
    return k % rows_ * p + k / rows_ * block_ + i % block_;
  }
  [[nodiscard]] constexpr value by_rows(value x) const { return grid_.split_as(x, 0, x.rank() == 3 ? 1 : -1); }
  /// x with rows in other places; a place that is none is left out.
  [[nodiscard]] constexpr value with_rows(value x, value places, value rows) const {
    const std::array<std::int64_t, 2> window{1, 2};
    const std::array<std::int64_t, 1> first{0};
    const scatter_dims dims{.update_window_dims = integers(window.data(), static_cast<std::size_t>(x.rank() - 1)),
                            .inserted_window_dims = integers(first.data(), 1),
                            .scatter_dims_to_operand_dims = integers(first.data(), 1),
                            .index_vector_dim = 1};
    return scatter(x, places, rows, dims, out_of_range::fill, at_);
  }

  const dealt_blocks_of& grid_;
  location at_;
  std::int64_t rows_, columns_, block_;
};

}  // namespace detail

constexpr value solve_dealt(value t, value b, matrix_grid grid, location at) {
  constexpr const char* op = "solve_dealt";
  if (!t.is_valid() || !b.is_valid()) return {};
  const detail::one_call call(t.graph(), op, {t.id(), b.id()});
  const detail::dealt_blocks_of blocks(t, grid, at);
  if (!blocks.are_blocks(t, true, op) || !blocks.fits_rows(t, b, op)) return detail::made(-1, b);
  const std::int64_t n = b.shape()[0], k = b.shape()[1];
  if (n == 0 || k == 0) return b;
  const std::int64_t round = blocks.columns() * grid.block, wide = (k + round - 1) / round * round;
  const value sides = blocks.deal(pad(b, {0, 0}, {0, wide - k}, 0, {}, at));
  const value x = reshape(detail::lu_on_grid(blocks, at).solve(t, sides), {n, blocks.columns(), wide / round, grid.block}, at);
  return slice(reshape(einsum<"ncqt->nqct">(blocks.split_as(x, -1, -1)), {n, wide}, at), {0, 0}, {n, k}, {}, at);
}
constexpr value solve(value a, value b, matrix_grid grid, location at) {
  if (!a.is_valid() || !b.is_valid()) return {};
  auto& g = *a.graph();
  if (!detail::fits_matrices(g, g.nodes[static_cast<std::size_t>(a.id())], g.nodes[static_cast<std::size_t>(b.id())], "solve",
                             at))
    return detail::made(-1, b);
  const std::int64_t n = b.shape()[0], k = b.shape()[1];
  return detail::padded_to_rounds(a, grid, "solve", at, [&](value t, const matrix_grid& fitting, std::int64_t padded) {
    if (n == 0) return b;
    const value sides = padded == n ? b : pad(b, {0, 0}, {padded - n, 0}, 0, {}, at);
    const value x = solve_dealt(t, sides, fitting, at);
    return padded == n ? x : slice(x, {0, 0}, {n, k}, {}, at);
  });
}

}  // namespace gspmd
