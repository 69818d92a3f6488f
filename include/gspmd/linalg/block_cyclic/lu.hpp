// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "gspmd/index/gather.hpp"
#include "gspmd/index/lookup.hpp"
#include "gspmd/index/order.hpp"
#include "gspmd/linalg/block_cyclic/distribute.hpp"
#include "gspmd/linalg/lu.hpp"
#include "gspmd/ops/loops.hpp"

/// Solution of linear systems with one large general matrix on a grid of devices.
namespace gspmd {

/// Returns solve (solve.hpp) of one matrix, computed on many devices: x of a x = b. a is [n, n] with any extent, and
/// b and x are [n, k], of float, double, c64 or c128. A matrix without a pivot gives infinities and NaNs.
///
/// The matrix is distributed and padded as by cholesky (block_cyclic/cholesky.hpp), with b as additional columns, and
/// eliminated strip by strip. A tournament finds the pivots of a block column. Each row of the grid eliminates its own
/// rows of the panel with partial pivoting. A second elimination takes the rows that these found. On one row of
/// devices this is partial pivoting. An element of l may be larger than 1.
///
/// With s strips a device holds about 2 n^2 / P elements. It also holds its columns of the rows of a strip, n^2 / (s
/// C) elements, and the squares, n^2 / s. It computes (2 / 3 + 1 / s) n^3 / P flops. Gradients keep each strip for
/// each of its block columns.
///
/// **Communication.** Only the square of a strip, (n / strips)^2 elements, is gathered. For each block column, a
/// device sends the panel and the rows of the pivots in the strip. For each strip it sends these rows to the right of
/// the strip, and the rows that replace them, as ScaLAPACK's pdgesv.
/// **Errors.** Those of cholesky over a grid; a b that does not fit.
/// **Example.**
///     const auto x = solve(a, b, {.rows = "x", .cols = "y", .strips = 8});
/// **Source.** Grigori, Demmel and Xiang, CALU: a communication optimal LU factorization algorithm, 2011.
constexpr value solve(value a, value b, matrix_grid grid, location at = location::current());

/// The same for a distributed matrix (distribute_matrix): t is [R, C, p, q], b and x are [n, k].
///
/// **Errors.** Those of distribute_matrix; a b that does not fit.
/// **Example.**
///     const auto x = block_cyclic_solve(t, b, grid);
constexpr value block_cyclic_solve(value t, value b, matrix_grid grid, location at = location::current());

namespace detail {

/// The steps of the elimination on a grid. The remaining rows of the matrix are [R, p, ...], block-cyclically
/// distributed, or [R p, ...]. An index in the second form is called a place.
class lu_on_grid {
 public:
  constexpr lu_on_grid(const block_cyclic_matrix& grid, location at)
      : grid_(grid), at_(at), rows_(grid.rows()), columns_(grid.cols()), block_(grid.block()) {}

  /// Returns x for distributed blocks of a and of b; the columns of b may have other blocks. x is [n, C, columns of b
  /// / C].
  [[nodiscard]] constexpr value solve(value a, value b) const {
    const std::int64_t rounds = a.shape()[2] * rows_ / grid_.round(), count = grid_.strips(rounds, 4);
    value left = grid_.on_grid(a), sides = by_places(grid_.on_grid(b));  // the part that is not eliminated
    detail::constant_vector<strip_of_rows> all;
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t width = rounds * (k + 1) / count * grid_.round() - rounds * k / count * grid_.round();
      // The original matrix is sliced before it is transposed; otherwise a copy of the whole matrix would be held,
      // too.
      const auto columns_of = [&](std::int64_t from, std::int64_t to) {
        const std::int64_t height = left.shape()[k == 0 ? 2 : 1];
        return k == 0 ? by_places(slice(left, {0, 0, 0, from}, {rows_, columns_, height, to}, {}, at_))
                      : slice(left, {0, 0, 0, from}, {rows_, height, columns_, to}, {}, at_);
      };
      const std::int64_t wide = width / columns_;
      const value strip = columns_of(0, wide);
      left = k + 1 == count ? value{} : columns_of(wide, left.shape()[3]);
      all.push_back(eliminate(strip, left, sides));
    }
    value x = solved(all.back().square, all.back().sides, false);
    for (std::int64_t k = count - 2; k >= 0; --k) {
      const strip_of_rows& strip = all[static_cast<std::size_t>(k)];
      const value right = strip.sides - product_of_columns(strip.beside, x);
      x = concatenate({solved(strip.square, right, false), x}, 0, at_);
    }
    return x;
  }

 private:
  /// The rows that a strip of columns eliminates, in the order of its pivots: the square with both factors, the part
  /// to the right of the square, [width, C, ...], and the rows of b.
  struct strip_of_rows {
    value square, beside, sides;
  };

  /// Eliminates with the pivots of a strip: subtracts their rows from the columns to the right of the strip, [R, p, C,
  /// ...], if they exist, and from the right-hand sides.
  [[nodiscard]] constexpr strip_of_rows eliminate(value cols, value& left, value& sides) const {
    const extents s = cols.shape();
    const std::int64_t p = s[1], wide = s[3], n = rows_ * p, width = wide * columns_, top = width / rows_;
    const auto factored = factor_strip(by_rows(reshape(cols, {n, columns_, wide}, at_)));
    const value strip = std::get<0>(factored), pivots = std::get<1>(factored), done = std::get<2>(factored);
    const value square = in_order(take(strip, pivots, 0, out_of_range::clip, 0, at_));
    const auto of_pivots = [&](value x) {
      const extents e = x.shape();
      const value flat = reshape(x, {n, columns_, e[3]}, at_);
      return solved(square, take(flat, pivots, 0, out_of_range::clip, 0, at_), true);
    };
    if (!left.is_valid()) return {square, {}, of_pivots(sides)};
    // The first rows of each row of the grid are removed. Those that are not pivots move to the places of pivots after
    // them.
    const value to = whole(places_for_tops(pivots, done, p, top));
    const auto without_pivots = [&](value x) {
      const std::int64_t v = x.shape()[3];
      const value tops = reshape(slice(x, {0, 0, 0, 0}, {rows_, top, columns_, v}, {}, at_), {width, columns_, v}, at_);
      const value behind =
          reshape(slice(x, {0, top, 0, 0}, {rows_, p, columns_, v}, {}, at_), {rows_ * (p - top), columns_, v}, at_);
      return reshape(with_rows(by_rows(behind), to, grid_.split_as(tops, -1, 1)), {rows_, p - top, columns_, v}, at_);
    };
    const value lower = grid_.split_as(without_pivots(reshape(strip, {rows_, p, columns_, wide}, at_)), 0, -1);
    const auto advance = [&](value x, value upper) {
      // The rows of the strip, distributed as its columns.
      const std::int64_t v = upper.shape()[2];
      const value cut = reshape(upper, {wide / block_, columns_, block_, columns_, v}, at_);
      const value distributed = reshape(einsum<"qctdv->cqtdv">(cut), {columns_, wide, columns_, v}, at_);
      return without_pivots(x) - einsum<"rpcx,cxdv->rpdv">(lower, distributed);
    };
    const value beside = of_pivots(left), own_sides = of_pivots(sides);
    left = advance(left, beside);
    sides = advance(sides, own_sides);
    return {square, beside, own_sides};
  }

  /// Eliminates the columns of a strip in place. The rows of pivots contain both factors. Returns the strip, the
  /// places of the pivots in their order, [width], and a mask with 1 for each row of a pivot, [n]. With blocks of 1 on
  /// one device: {{1, 2}, {4, 2}} -> {{0.25, 1.5}, {4, 2}}, {1, 0} and {1, 1}.
  [[nodiscard]] constexpr std::tuple<value, value, value> factor_strip(value strip) const {
    const extents s = strip.shape();
    const std::int64_t n = s[0], width = s[2], b = block_, count = width * columns_ / b;
    const auto body = [&](value k, value x, value places, value done) {
      const value zero = k * std::int64_t{0};
      const auto column = grid_.place_of(k, columns_);
      const value panel =
          by_rows(reshape(dynamic_slice(x, std::array{zero, column.part, column.first}, {n, 1, b}, at_), {n, b}, at_));
      const auto rows_of = [&](value mask) { return equal(broadcast_in_dim(mask, {n, b}, {0}, at_), std::int64_t{1}); };
      const value active = where(rows_of(done), 0.0, panel);
      const auto [factors, pivots] = tournament(active);
      const value now_done = whole(with_rows(done, pivots, pivots * std::int64_t{0} + std::int64_t{1}));

      // The rows of u, and the elimination with them.
      const value head = grid_.split_as(take(x, pivots, 0, out_of_range::clip, 0, at_), -1, 1);
      const value is_behind = grid_.global_index({b, columns_, width}, 1, 2) >= k * b + b;
      const value upper = where(is_behind, solved(factors, head, true), 0.0);
      const value by_columns = triangular_solve(factors, einsum<"nb->bn">(active), {.lower = false, .transposed = true}, at_);
      const value lower = by_rows(einsum<"bn->nb">(by_columns));
      const value next = with_rows(x, pivots, where(is_behind, upper, head)) -
                         einsum<"nb,bcv->ncv">(where(rows_of(now_done), 0.0, lower), upper);
      // The rows of pivots are written last. If there was no pivot, one of these rows may be eliminated already and has
      // the zero that makes x NaN or infinite.
      const value own_columns = with_rows(where(rows_of(done), panel, lower), pivots, factors);
      return std::tuple{
          dynamic_update_slice(next, reshape(own_columns, {n, 1, b}, at_), std::array{zero, column.part, column.first}, at_),
          whole(dynamic_update_slice(places, pivots, std::array{k * b}, at_)), now_done};
    };
    const auto zeros = [&](std::int64_t of) { return iota<std::int64_t>(strip, {of}, 0, at_) * std::int64_t{0}; };
    const auto [next, places, done] =
        fori_loop(trip_count(count, at_), body, strip, whole(zeros(width * columns_)), whole(zeros(n)));
    return {next, whole(places), whole(done)};
  }

  /// Returns the factors of the pivots' rows of a panel, [b, b], and their places, [b]. Eliminated rows are zeros.
  /// They are chosen if no pivot exists. Then the matrix is singular, and the zero on the diagonal makes the results
  /// NaN or infinite. With blocks of 1 on one device: {{0}, {3}, {1}} -> {{3}}, {1}.
  [[nodiscard]] constexpr std::pair<value, value> tournament(value panel) const {
    const extents s = panel.shape();
    const std::int64_t n = s[0], p = n / rows_, b = block_;
    const value cut = grid_.split_as(reshape(panel, {rows_, p, b}, at_), 0, -1);
    const value found = cast<std::int64_t>(slice(order_of(cut), {0, 0}, {rows_, b}, {}, at_));
    const value own_rows =
        take_along_axis(cut, broadcast_in_dim(found, {rows_, b, b}, {0, 1}, at_), 1, out_of_range::clip, 0, at_);
    const value own_places = iota<std::int64_t>(panel, {rows_, b}, 0, at_) * p + found;
    const value candidates = reshape(whole(own_places), {rows_ * b}, at_);
    const value rows = reshape(whole(grid_.split_as(own_rows, 0, -1)), {rows_ * b, b}, at_);
    const value best = cast<std::int64_t>(slice(order_of(rows), {0}, {b}, {}, at_));
    const auto [factors, order] = lu(take(rows, best, 0, out_of_range::clip, 0, at_), at_);
    const value pivots =
        take(take(candidates, best, 0, out_of_range::clip, 0, at_), cast<std::int64_t>(order), 0, out_of_range::clip, 0, at_);
    return {factors, pivots};
  }
  /// Returns the new places of the first `top` rows of each row of the grid, [R top], among the rows after them. Rows
  /// that are not pivots move to the places of pivots there. Rows of pivots get the place after the last row, so they
  /// are dropped. With R = 1, p = 4, top = 2 and pivots {3, 0}: {2, 1}.
  [[nodiscard]] constexpr value places_for_tops(value pivots, value done, std::int64_t p, std::int64_t top) const {
    const std::int64_t count = rows_ * top, rest = rows_ * (p - top);
    const value i = iota<std::int64_t>(pivots, {count}, 0, at_), zero = i * std::int64_t{0};
    const auto turns = [&](value chosen) { return cumsum(cast<std::int64_t>(chosen), 0, {}, at_) - std::int64_t{1}; };
    const value is_behind = pivots % p >= top;
    const value hole = whole(where(is_behind, turns(is_behind), zero + count));
    const value holes = with_rows(zero + rest, hole, pivots / p * (p - top) + pivots % p - top);
    const value stays = equal(take(done, i / top * p + i % top, 0, out_of_range::clip, 0, at_), std::int64_t{0});
    return where(stays, take(holes, turns(stays), 0, out_of_range::clip, 0, at_), zero + rest);
  }
  /// Returns the order of rows in the elimination of panels [..., rows, columns].
  [[nodiscard]] constexpr value order_of(value panels) const {
    auto& g = *panels.graph();
    extents shape = panels.shape();
    shape.pop_back();
    const int id = add_lu(g, panels.id(), at_, true);
    return made(g, id < 0 ? -1 : id + 1, dtype::s32, shape);
  }
  /// Solves for x [w, C, v] with the lower factor of the square, whose diagonal is ones, or with the upper factor.
  [[nodiscard]] constexpr value solved(value square, value x, bool lower) const {
    const extents s = x.shape();
    const value flat = reshape(x, {s[0], s[1] * s[2]}, at_);
    return reshape(triangular_solve(square, flat, {.lower = lower, .unit_diagonal = lower}, at_), {s[0], s[1], s[2]}, at_);
  }
  /// Returns [w, C, v] times the rows [C v, C, k], which are whole on every device before they are distributed.
  [[nodiscard]] constexpr value product_of_columns(value a, value x) const {
    const extents s = a.shape(), of_x = x.shape();
    const value whole = grid_.split_as(reshape(x, {s[2] / block_, columns_, block_, of_x[1] * of_x[2]}, at_), -1, -1);
    const value distributed = reshape(einsum<"qctk->cqtk">(whole), {columns_, s[2], of_x[1] * of_x[2]}, at_);
    return reshape(einsum<"wcv,cvk->wk">(a, distributed), {s[0], of_x[1], of_x[2]}, at_);
  }
  /// Returns the square of a strip, [w, C, w / C], with its columns in the order of the matrix, on every device.
  [[nodiscard]] constexpr value in_order(value square) const {
    const extents s = square.shape();
    const value cut = reshape(square, {s[0], columns_, s[2] / block_, block_}, at_);
    return whole(reshape(einsum<"wcqt->wqct">(whole(cut)), {s[0], s[0]}, at_));
  }
  [[nodiscard]] constexpr value by_places(value t) const { return einsum<"rcpq->rpcq">(t); }
  /// Returns x, replicated on all devices.
  [[nodiscard]] constexpr value whole(value x) const { return grid_.split_as(x, -1, -1); }
  [[nodiscard]] constexpr value by_rows(value x) const { return grid_.split_as(x, 0, x.rank() == 3 ? 1 : -1); }
  /// Returns x with `rows` written at `places`. A place outside of x is skipped.
  [[nodiscard]] constexpr value with_rows(value x, value places, value rows) const {
    const std::array<std::int64_t, 2> window{1, 2};
    const std::array<std::int64_t, 1> first{0};
    const scatter_dims dims{.update_window_dims = integers(window.data(), static_cast<std::size_t>(x.rank() - 1)),
                            .inserted_window_dims = integers(first.data(), 1),
                            .scatter_dims_to_operand_dims = integers(first.data(), 1),
                            .index_vector_dim = 1};
    return scatter(x, places, rows, dims, out_of_range::fill, at_);
  }

  const block_cyclic_matrix& grid_;
  location at_;
  std::int64_t rows_, columns_, block_;
};

}  // namespace detail

constexpr value block_cyclic_solve(value t, value b, matrix_grid grid, location at) {
  constexpr const char* op = "block_cyclic_solve";
  if (!t.is_valid() || !b.is_valid()) return {};
  const detail::one_call call(t.graph(), op, {t.id(), b.id()});
  const detail::block_cyclic_matrix blocks(t, grid, at);
  if (!blocks.are_blocks(t, true, op) || !blocks.fits_rows(t, b, op)) return detail::made(-1, b);
  const std::int64_t n = b.shape()[0], k = b.shape()[1];
  if (n == 0 || k == 0) return b;
  // If b has few columns, its blocks are narrower.
  const std::int64_t each = (k + blocks.cols() - 1) / blocks.cols(), width = each < grid.block ? each : grid.block;
  const std::int64_t round = blocks.cols() * width, wide = (k + round - 1) / round * round;
  const value sides = blocks.distribute(pad(b, {0, 0}, {0, wide - k}, 0, {}, at), width);
  const value x = reshape(detail::lu_on_grid(blocks, at).solve(t, sides), {n, blocks.cols(), wide / round, width}, at);
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
    const value x = block_cyclic_solve(t, sides, fitting, at);
    return padded == n ? x : slice(x, {0, 0}, {n, k}, {}, at);
  });
}

}  // namespace gspmd
