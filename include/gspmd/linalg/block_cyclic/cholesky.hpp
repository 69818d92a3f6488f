// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gspmd/index/gather.hpp"
#include "gspmd/linalg/block_cyclic/distribute.hpp"
#include "gspmd/ops/loops.hpp"

/// Cholesky's factor of one large matrix on a grid of devices, and linear systems with the factor.
namespace gspmd {

/// Returns the lower triangle l of l l^H = a. a and l are distributed blocks (distribute_matrix). a is symmetric
/// (Hermitian) and positive definite. The elements above the diagonal are not read.
///
/// If a is not positive definite, the columns of l are NaN from the strip with the first column that has no root. A
/// NaN or an infinity of a below the square of its strip is in its row of l, from its column on. The columns are NaN
/// from the strip that has this row on its diagonal.
///
/// The algorithm is left-looking and factors strips of W = n / strips columns. For each strip, the product with all
/// previous columns is subtracted. The square at the top of the strip is gathered, and every device factors it. Each
/// row of the grid distributes its rows below the square to its devices, which solve for them. A device holds n^2 / P
/// elements of a, twice this number of l, and a square. It computes about (1 + P / strips^2 + 1 / strips) n^3 / 3 P
/// flops.
///
/// **Communication.** For a strip with m remaining rows and k finished columns, a device sends:
///
///     (C - 1) / C m W / R     partial sums of the product (a reduce_scatter)
///     (R - 1) / R W k / C     rows of l of the strip
///     (P - 1) / P W^2         the square of the strip
///     2 (C - 1) / C m W / P   rows of the strip (all_to_alls)
///
/// ScaLAPACK's pdpotrf broadcasts n^2 / 2 ((C - 1) / P + (R - 1) / P). The total here is at most that number plus n^2
/// / strips and n^2 (C - 1) / (C P) for the last two lines.
/// **Example.**
///     const auto l = block_cyclic_cholesky(distribute_matrix(a, grid), grid);
/// **Source.** Golub and Van Loan, Matrix Computations, 4.2.9.
constexpr value block_cyclic_cholesky(value t, matrix_grid grid, location at = location::current());

/// Returns x of l l^H x = b for distributed blocks of a lower triangle l, by two loops over block rows. b and x are
/// [n, k].
///
/// **Communication.** b and x are whole on every device before, between and after the loops, which takes two gathers
/// of n k elements. Each block row all_reduces block * (block + k) elements. l may be moved once for each loop, by an
/// all_to_all of its shard, so that all devices take part in every row.
/// **Errors.** Those of distribute_matrix; a b that does not fit.
/// **Example.**
///     const auto x = block_cyclic_cholesky_solve(l, b, grid);
constexpr value block_cyclic_cholesky_solve(value l, value b, matrix_grid grid, location at = location::current());

/// Returns cholesky (solve.hpp) of one matrix, computed on many devices. a is [n, n] of float, double, c64 or c128.
/// The elements above the diagonal are not read. The matrix is distributed, factored and collected. n may be any
/// extent: the matrix is padded with ones on the diagonal to whole rounds of blocks.
///
/// **Communication.** That of distribute_matrix, block_cyclic_cholesky and collect_matrix.
/// **Example.**
///     const auto l = cholesky(a, {.rows = "x", .cols = "y"});
constexpr value cholesky(value a, matrix_grid grid, location at = location::current());

/// Returns x of a x = b for a symmetric, positive definite a, [n, n], on many devices. b and x are [n, k]. See
/// block_cyclic_cholesky and block_cyclic_cholesky_solve.
///
/// **Example.**
///     const auto x = solve_positive(a, b, {.rows = "x", .cols = "y"});
constexpr value solve_positive(value a, value b, matrix_grid grid, location at = location::current());

namespace detail {

/// The steps of factorisation and solution on a grid.
class cholesky_on_grid {
 public:
  constexpr cholesky_on_grid(const block_cyclic_matrix& grid, location at) : grid_(grid), at_(at) {}

  /// Returns the factor of distributed blocks, strip by strip: {{4, 2}, {2, 5}} -> {{2, 0}, {1, 2}} on one device.
  [[nodiscard]] constexpr value factor(value t) const {
    const extents s = t.shape();
    const std::int64_t n = s[2] * grid_.rows(), rounds = n / grid_.round();
    // Each device factors all squares: n^3 / (3 strips^2) flops in addition to its own n^3 / (3 P).
    std::int64_t by_default = 8;
    while (by_default * by_default < 4 * grid_.rows() * grid_.cols()) ++by_default;
    const std::int64_t count = grid_.strips(rounds, by_default);
    if (count == 0) return t;
    value known;  // the columns to the left of a strip, in the rows of the strip and below
    detail::constant_vector<value> all;
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t begin = rounds * k / count * grid_.round(), end = rounds * (k + 1) / count * grid_.round();
      const std::int64_t top = begin / grid_.rows(), left = begin / grid_.cols(), right = end / grid_.cols();
      value strip = slice(t, {0, 0, top, left}, {grid_.rows(), grid_.cols(), s[2], right}, {}, at_);
      if (k > 0) {
        const value across =
            slice(known, {0, 0, 0, 0}, {grid_.rows(), grid_.cols(), (end - begin) / grid_.rows(), left}, {}, at_);
        strip = strip - product(known, across);
      }
      const value factored = factor_strip(strip);
      all.push_back(top == 0 ? factored : pad(factored, {0, 0, top, 0}, {0, 0, 0, 0}, 0, {}, at_));
      if (k + 1 == count) break;
      const value both = known.is_valid() ? concatenate({known, factored}, 3, at_) : factored;
      known = slice(both, {0, 0, (end - begin) / grid_.rows(), 0}, {grid_.rows(), grid_.cols(), s[2] - top, right}, {}, at_);
    }
    return all.size() == 1 ? all[0] : concatenate(span<const value>(all.data(), all.size()), 3, at_);
  }
  [[nodiscard]] constexpr value solve_both(value l, value b) const {
    if (b.shape()[0] == 0) return b;
    const value x = grid_.collect_rows(solve_forward(l, grid_.distribute_rows(b, grid_.cols(), false)), false);
    return grid_.collect_rows(solve_backward(l, grid_.distribute_rows(x, grid_.rows(), false)), false);
  }

 private:
  /// Returns a b^H for distributed blocks: rows of b become columns.
  [[nodiscard]] constexpr value product(value a, value b) const {
    const extents s = b.shape();
    const value rows_of_b = reshape(einsum<"rcjk->rjck">(grid_.conjugated(b)), {s[0], s[2], s[1] * s[3]}, at_);
    const value as_columns =
        grid_.rows() == grid_.cols() ? rows_of_b : grid_.distribute_rows(grid_.collect_rows(rows_of_b, true), grid_.cols(), true);
    const value cut = reshape(as_columns, {grid_.cols(), s[0] * s[2] / grid_.cols(), s[1], s[3]}, at_);
    return einsum<"rxik,cjxk->rcij">(a, cut);
  }
  /// Returns the columns of l of a strip, from the first row of the strip. Every device factors the square at the top,
  /// and solves for some of the rows below it.
  [[nodiscard]] constexpr value factor_strip(value strip) const {
    const extents s = strip.shape();
    const std::int64_t r = grid_.rows(), c = grid_.cols(), width = s[3] * c, top = width / r, rest = s[2] - top;
    const value square = in_order(rest == 0 ? strip : slice(strip, {0, 0, 0, 0}, {r, c, top, s[3]}, {}, at_));
    // cholesky takes (a + a^H) / 2. For the lower triangle and its mirror image this is the triangle.
    const value is_upper =
        iota<std::int64_t>(grid_.like(), {width, width}, 0, at_) < iota<std::int64_t>(grid_.like(), {width, width}, 1, at_);
    const value mirrored = where(is_upper, grid_.conjugated(einsum<"ij->ji">(square)), square);
    const value l = grid_.split_as(cholesky(mirrored, at_), -1, -1);  // whole on every device, also if it is split below
    const value on_top = distributed(l);
    if (rest == 0) return on_top;
    // Rows are whole on a device while they are solved for: a row of the grid distributes its rows to its devices.
    const std::int64_t b = grid_.block(), turns = width / (c * b);
    const value below = grid_.split_as(slice(strip, {0, 0, top, 0}, {r, c, s[2], s[3]}, {}, at_), 0, 2);
    const value sides = reshape(einsum<"rcmqt->rqctm">(reshape(below, {r, c, rest, turns, b}, at_)), {r, width, rest}, at_);
    const value factor = broadcast_in_dim(grid_.conjugated(l), {r, width, width}, {1, 2}, at_);
    const value x = triangular_solve(factor, grid_.split_as(sides, 0, 2), {}, at_);
    const value solved = einsum<"rqctm->rcmqt">(reshape(grid_.split_as(x, 0, 2), {r, turns, c, b, rest}, at_));
    return concatenate({on_top, grid_.on_grid(grid_.split_as(reshape(solved, {r, c, rest, s[3]}, at_), 0, 2))}, 2, at_);
  }
  /// in_order returns a square of distributed blocks in the order of the matrix, on every device. distributed is its
  /// inverse.
  [[nodiscard]] constexpr value in_order(value t) const {
    const extents s = t.shape();
    const std::int64_t b = grid_.block(), width = s[3] * s[1];
    const value cut = reshape(grid_.split_as(t, -1, -1), {s[0], s[1], s[2] / b, b, s[3] / b, b}, at_);
    return grid_.split_as(reshape(einsum<"rcqtsu->qrtscu">(cut), {width, width}, at_), -1, -1);
  }
  [[nodiscard]] constexpr value distributed(value a) const {
    const std::int64_t b = grid_.block(), r = grid_.rows(), c = grid_.cols(), width = a.shape()[0];
    const value cut = grid_.split_as(reshape(a, {width / (r * b), r, b, width / (c * b), c, b}, at_), 1, 4);
    return grid_.on_grid(reshape(einsum<"qrtscu->rcqtsu">(cut), {r, c, width / r, width / c}, at_));
  }
  /// Solves l x = b. x and b are distributed as the columns of l.
  [[nodiscard]] constexpr value solve_forward(value l, value b) const {
    const extents s = b.shape();
    const std::int64_t width = s[1], size = grid_.block();
    const auto body = [&](value k, value x) {
      const value zero = k * std::int64_t{0};
      const block_cyclic_matrix::place row = grid_.place_of(k, grid_.rows()), column = grid_.place_of(k, grid_.cols());
      const value across =
          reshape(dynamic_slice(l, std::array{row.part, zero, row.first, zero}, {1, grid_.cols(), size, width}, at_),
                  {grid_.cols(), size, width}, at_);
      const value known = where(grid_.global_index({grid_.cols(), size, width}, 0, 2) < k * size, across, 0.0);
      return solved_block(l, x, einsum<"cjk,ckn->jn">(known, x), row, column, column, false);
    };
    return fori_loop(trip_count(width * grid_.cols() / size, at_), body, b);
  }
  /// Solves l^H x = b from the last block to the first. x and b are distributed as the rows of l.
  [[nodiscard]] constexpr value solve_backward(value l, value b) const {
    const extents s = b.shape();
    const std::int64_t height = s[1], size = grid_.block(), count = height * grid_.rows() / size;
    const auto body = [&](value trip, value x) {
      const value k = (count - 1) - trip, zero = trip * std::int64_t{0};
      const block_cyclic_matrix::place row = grid_.place_of(k, grid_.rows()), column = grid_.place_of(k, grid_.cols());
      const value below =
          reshape(dynamic_slice(l, std::array{zero, column.part, zero, column.first}, {grid_.rows(), 1, height, size}, at_),
                  {grid_.rows(), height, size}, at_);
      const value known =
          where(grid_.global_index({grid_.rows(), height, size}, 0, 1) < k * size + size, 0.0, grid_.conjugated(below));
      return solved_block(l, x, einsum<"rij,rin->jn">(known, x), row, column, row, true);
    };
    return fori_loop(trip_count(count, at_), body, b);
  }
  /// Returns x with block `own` replaced by the solution with the diagonal block.
  [[nodiscard]] constexpr value solved_block(value l, value x, value sum, block_cyclic_matrix::place row,
                                             block_cyclic_matrix::place column, block_cyclic_matrix::place own,
                                             bool is_adjoint) const {
    const std::int64_t b = grid_.block(), k = x.shape()[2];
    const value zero = row.part * std::int64_t{0};
    const value corner =
        reshape(dynamic_slice(l, std::array{row.part, column.part, row.first, column.first}, {1, 1, b, b}, at_), {b, b}, at_);
    const value sides = reshape(dynamic_slice(x, std::array{own.part, own.first, zero}, {1, b, k}, at_), {b, k}, at_) - sum;
    const value solved = triangular_solve(is_adjoint ? grid_.conjugated(corner) : corner, sides, {.transposed = is_adjoint}, at_);
    return dynamic_update_slice(x, reshape(solved, {1, b, k}, at_), std::array{own.part, own.first, zero}, at_);
  }

  const block_cyclic_matrix& grid_;
  location at_;
};

}  // namespace detail

constexpr value block_cyclic_cholesky(value t, matrix_grid grid, location at) {
  constexpr const char* op = "block_cyclic_cholesky";
  if (!t.is_valid()) return {};
  const detail::one_call call(t.graph(), op, {t.id()});
  const detail::block_cyclic_matrix blocks(t, grid, at);
  return blocks.are_blocks(t, true, op) ? detail::cholesky_on_grid(blocks, at).factor(blocks.on_grid(t)) : detail::made(-1, t);
}
constexpr value block_cyclic_cholesky_solve(value l, value b, matrix_grid grid, location at) {
  constexpr const char* op = "block_cyclic_cholesky_solve";
  if (!l.is_valid() || !b.is_valid()) return {};
  const detail::one_call call(l.graph(), op, {l.id(), b.id()});
  const detail::block_cyclic_matrix blocks(l, grid, at);
  if (!blocks.are_blocks(l, true, op) || !blocks.fits_rows(l, b, op)) return detail::made(-1, b);
  return detail::cholesky_on_grid(blocks, at).solve_both(blocks.on_grid(l), b);
}

constexpr value cholesky(value a, matrix_grid grid, location at) {
  if (!a.is_valid()) return {};
  const std::int64_t n = a.shape().count > 0 ? a.shape()[0] : 0;
  return detail::padded_to_rounds(a, grid, "cholesky", at, [&](value t, const matrix_grid& fitting, std::int64_t padded) {
    const value l = collect_matrix(block_cyclic_cholesky(t, fitting, at), fitting, at);
    return padded == n ? l : slice(l, {0, 0}, {n, n}, {}, at);
  });
}
constexpr value solve_positive(value a, value b, matrix_grid grid, location at) {
  if (!a.is_valid() || !b.is_valid()) return {};
  auto& g = *a.graph();
  if (!detail::fits_matrices(g, g.nodes[static_cast<std::size_t>(a.id())], g.nodes[static_cast<std::size_t>(b.id())],
                             "solve_positive", at))
    return detail::made(-1, b);
  const std::int64_t n = b.shape()[0], k = b.shape()[1];
  return detail::padded_to_rounds(a, grid, "solve_positive", at, [&](value t, const matrix_grid& fitting, std::int64_t padded) {
    const value sides = padded == n ? b : pad(b, {0, 0}, {padded - n, 0}, 0, {}, at);
    const value x = block_cyclic_cholesky_solve(block_cyclic_cholesky(t, fitting, at), sides, fitting, at);
    return padded == n ? x : slice(x, {0, 0}, {n, k}, {}, at);
  });
}

}  // namespace gspmd
