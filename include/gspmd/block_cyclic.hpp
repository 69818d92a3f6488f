// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gspmd/index/gather.hpp"
#include "gspmd/linalg.hpp"
#include "gspmd/ops/einsum.hpp"
#include "gspmd/ops/integers.hpp"
#include "gspmd/ops/loops.hpp"
#include "gspmd/sharding.hpp"

/// One large matrix over many devices: dealt to a grid of them in blocks, and factored there.
namespace gspmd {

/// How a matrix is dealt: blocks of `block` x `block` elements in turn to the devices along the axes `rows`, and along `columns` (ScaLAPACK's
/// layout). The names are those of a sharding: one axis, several ("x,y"), or none ("") for a dim that is not split.
struct matrix_grid {
  dim_spec rows = _, columns = _;
  std::int64_t block = 64;
  std::int64_t strips = 4;  // of columns: more take fewer flops, in more operators
};

/// The matrix [n, m] as its dealt blocks, [R, C, n / R, m / C]: R and C are the sizes of the grid, dims 0 and 1 are split over it, and the last two
/// are the local matrix of ScaLAPACK's process (r, c), row-major. n is a multiple of R * block and m of C * block.
///
/// Communicates what lies elsewhere: an all_to_all of the shard, (P - 1) / P of it, and a shift between neighbours where an extent is no
/// multiple of R^2 (C^2) blocks. Errors: another rank, extents that are no multiples of R (C) blocks (pad, or call cholesky or solve_positive of
/// whole matrices, which do), an axis that the mesh does not have.
///
///     const auto t = deal_matrix(a, {.rows = "x", .columns = "y", .block = 64});
constexpr value deal_matrix(value a, matrix_grid grid, location at = location::current());

/// The matrix whose dealt blocks these are: [R, C, p, q] -> [R p, C q]. Communicates as deal_matrix, and has its errors.
constexpr value collect_matrix(value t, matrix_grid grid, location at = location::current());

/// The lower triangle l of l l^T = a, of dealt blocks, and dealt as they are: a is symmetric and positive definite, and what is above the
/// diagonal is not read. Of a matrix that is not positive definite the columns are NaN from the block on that has the first one without a root.
///
/// Nothing is gathered: a device holds n^2 / P elements of a, as many of l and panels of n * block / R and n * n / (strips * C). For each block
/// column it sends its part of the block row before it and of the column below it, as ScaLAPACK's pdpotrf, which broadcasts where this
/// all_reduces: about n^2 / 2 (1 / C + 1 / R) elements, times 2 (R - 1) / R and 2 (C - 1) / C. With s strips (1 / 3 + 2 / (3 s) + ...) n^3 / P
/// flops, at most. Source: Golub and Van Loan, 4.2.9 (left-looking). Gradients store l for each block column: n^3 / (block P) elements.
///
///     const auto l = dealt_cholesky(deal_matrix(a, grid), grid);
constexpr value dealt_cholesky(value t, matrix_grid grid, location at = location::current());

/// x of l l^T x = b for dealt blocks of a lower triangle l, by two loops over block rows: b and x are [n, k], and whole on every device before,
/// between and after the loops, for which n k elements are gathered twice. For each block row block * (block + k) elements are all_reduced; l may
/// move once for each loop, an all_to_all of its shard, so that all devices take part in every row. Errors: those of deal_matrix, and a b that does
/// not fit.
///
///     const auto x = dealt_solve(l, b, grid);
constexpr value dealt_solve(value l, value b, matrix_grid grid, location at = location::current());

/// cholesky (linalg.hpp) of one matrix over many devices: it is dealt, factored and collected, and may have any extent: it is padded with ones on
/// the diagonal up to whole rounds of blocks. [n, n], float or double; what is above the diagonal is not read. Costs: those of deal_matrix,
/// dealt_cholesky and collect_matrix.
///
///     const auto l = cholesky(a, {.rows = "x", .columns = "y"});
constexpr value cholesky(value a, matrix_grid grid, location at = location::current());

/// x of a x = b for a symmetric, positive definite a, [n, n], over many devices; b and x are [n, k]. As dealt_cholesky and dealt_solve.
///
///     const auto x = solve_positive(a, b, {.rows = "x", .columns = "y"});
constexpr value solve_positive(value a, value b, matrix_grid grid, location at = location::current());

namespace detail {

/// A grid on the mesh of a program, and the steps of algorithms on it.
class dealt_blocks_of {
 public:
  constexpr dealt_blocks_of(value x, const matrix_grid& grid, location at)
      : like_(x), block_(grid.block), strips_(grid.strips), at_(at) {
    const mesh_info& mesh = *x.graph()->mesh;
    const dim_spec dims[] = {grid.rows, grid.columns, _, _};
    sharding_ = resolve(mesh, dims, 4, 4);
    for (const auto& use : sharding_.value.layout.splits) (use.dim == 0 ? rows_ : columns_) *= mesh.shape.sizes[use.axis];
    round_ = std::lcm(rows_, columns_);
  }

  /// Says what is wrong with the grid, or with `t` as dealt blocks of a square matrix if that is asked for.
  [[nodiscard]] constexpr bool is_sound(const char* op) const {
    if (!sharding_.problem.empty()) like_.graph()->fail(at_, op, sharding_.broken, sharding_.problem);
    else if (block_ < 1 || strips_ < 1)
      like_.graph()->fail(at_, op, mistake::bounds,
                          text("deals blocks of ") << block_ << " in " << strips_ << " strips; there is at least one of each");
    else return true;
    return false;
  }
  [[nodiscard]] constexpr bool are_blocks(value t, bool is_square, const char* op) const {
    if (!is_sound(op)) return false;
    const extents s = t.shape();
    if (s.count == 4 && s[0] == rows_ && s[1] == columns_ && s[2] % block_ == 0 && s[3] % block_ == 0 &&
        (!is_square || s[2] * rows_ == s[3] * columns_))
      return true;
    t.graph()->fail(at_, op, mistake::extent,
                    text("is given ") << shape_text(s) << "; it takes the blocks that deal_matrix makes of a "
                                      << (is_square ? "square " : "") << "matrix, [" << rows_ << "," << columns_
                                      << ",p,q], p and q multiples of " << block_);
    return false;
  }

  [[nodiscard]] constexpr std::int64_t rows() const { return rows_; }
  [[nodiscard]] constexpr std::int64_t columns() const { return columns_; }
  [[nodiscard]] constexpr std::int64_t block() const { return block_; }
  /// Blocks along a dim are dealt to both dims of the grid in rounds of so many elements.
  [[nodiscard]] constexpr std::int64_t round() const { return round_ * block_; }
  /// Of a matrix that is smaller than a round, which would be mostly padding.
  constexpr void shrink_blocks(std::int64_t n) {
    const std::int64_t most = (n + round_ - 1) / round_;
    if (block_ > most && most > 0) block_ = most;
  }
  [[nodiscard]] constexpr value on_grid(value t) const { return split_as(t, 0, 1); }

  // Parts of a matrix as it lies are whole rounds of blocks, as a reshape needs it, where there are R times as many of these rounds.
  [[nodiscard]] constexpr value deal(value a) const {
    const extents s = a.shape();
    const std::int64_t b = block_, m = whole_rounds(s[0], rows_), n = whole_rounds(s[1], columns_);
    const value wide = m == s[0] && n == s[1] ? a : pad(a, {0, 0}, {m - s[0], n - s[1]}, 0, {}, at_);
    const value cut =
        split_as(reshape(split_as(wide, 0, 1), {m / (rows_ * b), rows_, b, n / (columns_ * b), columns_, b}, at_), 0, 3);
    const value dealt = slice(split_as(einsum<"qrtscu->rcqtsu">(cut), 0, 1), {0, 0, 0, 0, 0, 0},
                              {rows_, columns_, s[0] / (rows_ * b), b, s[1] / (columns_ * b), b}, {}, at_);
    return on_grid(reshape(dealt, {rows_, columns_, s[0] / rows_, s[1] / columns_}, at_));
  }
  [[nodiscard]] constexpr value collect(value t) const {
    const extents s = t.shape();
    const std::int64_t b = block_, m = s[2] * rows_, n = s[3] * columns_, wide_m = whole_rounds(m, rows_),
                       wide_n = whole_rounds(n, columns_);
    const value wide = pad(on_grid(t), {0, 0, 0, 0}, {0, 0, (wide_m - m) / rows_, (wide_n - n) / columns_}, 0, {}, at_);
    const value cut = reshape(wide, {rows_, columns_, wide_m / (rows_ * b), b, wide_n / (columns_ * b), b}, at_);
    const value in_order = split_as(einsum<"rcqtsu->qrtscu">(split_as(cut, 0, 1)), 0, 3);
    return slice(reshape(in_order, {wide_m, wide_n}, at_), {0, 0}, {m, n}, {}, at_);
  }
  /// Rows [n, k] dealt to so many parts, [parts, n / parts, k]. All devices have them before that; the last dim may be split over the columns of
  /// the grid.
  [[nodiscard]] constexpr value deal_rows(value x, std::int64_t parts, bool keeps_columns) const {
    const extents s = x.shape();
    const value cut = reshape(x, {s[0] / (parts * block_), parts, block_, s[1]}, at_);
    return reshape(einsum<"qrtk->rqtk">(split_as(cut, -1, keeps_columns ? 3 : -1)), {parts, s[0] / parts, s[1]}, at_);
  }
  /// Dealt rows in order, as deal_rows takes them.
  [[nodiscard]] constexpr value collect_rows(value x, bool keeps_columns) const {
    const extents s = x.shape();
    const value in_order = einsum<"rqtk->qrtk">(reshape(x, {s[0], s[1] / block_, block_, s[2]}, at_));
    return reshape(split_as(in_order, -1, keeps_columns ? 3 : -1), {s[0] * s[1], s[2]}, at_);
  }

  [[nodiscard]] constexpr value factor(value t) const {
    const extents s = t.shape();
    const std::int64_t n = s[2] * rows_, rounds = n / round(), count = rounds < strips_ ? rounds : strips_;
    if (count == 0) return t;
    value known;  // columns to the left of a strip, and its rows and those below
    std::vector<value> all;
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t begin = rounds * k / count * round(), end = rounds * (k + 1) / count * round();
      const std::int64_t top = begin / rows_, left = begin / columns_, right = end / columns_;
      value strip = slice(t, {0, 0, top, left}, {rows_, columns_, s[2], right}, {}, at_);
      if (k > 0) {
        const value across = slice(known, {0, 0, 0, 0}, {rows_, columns_, (end - begin) / rows_, left}, {}, at_);
        strip = strip - product(known, across);
      }
      // The loop reads rows across the diagonal, and of a NaN times 0 the sum is NaN: what is above it is zeros first.
      const extents whole = strip.shape();
      strip = select(global_index(whole, 0, 2) < global_index(whole, 1, 3), 0.0, strip);
      const value factored = factor_strip(strip);
      all.push_back(top == 0 ? factored : pad(factored, {0, 0, top, 0}, {0, 0, 0, 0}, 0, {}, at_));
      if (k + 1 == count) break;
      const value both = known.is_valid() ? concatenate({known, factored}, 3, at_) : factored;
      known = slice(both, {0, 0, (end - begin) / rows_, 0}, {rows_, columns_, s[2] - top, right}, {}, at_);
    }
    return all.size() == 1 ? all[0] : concatenate(span<const value>(all.data(), all.size()), 3, at_);
  }
  [[nodiscard]] constexpr value solve_both(value l, value b) const {
    if (b.shape()[0] == 0) return b;
    const value x = collect_rows(solve_forward(l, deal_rows(b, columns_, false)), false);
    return collect_rows(solve_backward(l, deal_rows(x, rows_, false)), false);
  }

 private:
  /// Dim `row` split over the rows of the grid and dim `column` over its columns; -1: none.
  [[nodiscard]] constexpr value split_as(value x, int row, int column) const {
    resolved_sharding r;
    for (const auto& use : sharding_.value.layout.splits)
      if (const int dim = use.dim == 0 ? row : column; dim >= 0) r.value.layout.add_split(use.axis, dim);
    return annotate(x, r, "deal_matrix", at_);
  }
  [[nodiscard]] constexpr std::int64_t whole_rounds(std::int64_t n, std::int64_t parts) const {
    const std::int64_t round = parts * parts * block_;
    return (n + round - 1) / round * round;
  }
  /// Where block `k` of a dim lies: the part, and its first element there.
  struct place {
    value part, first;
  };
  [[nodiscard]] constexpr place place_of(value k, std::int64_t parts) const { return {k % parts, k / parts * block_}; }
  /// The indices in the matrix of a tensor's dim `along` that is dealt to its dim `part`.
  [[nodiscard]] constexpr value global_index(integers shape, int part, int along) const {
    const auto parts = shape[static_cast<std::size_t>(part)];
    const value local = iota<std::int64_t>(like_, shape, along, at_);
    return (local / block_ * parts + iota<std::int64_t>(like_, shape, part, at_)) * block_ + local % block_;
  }

  /// a b^T for blocks that are dealt to rows and columns: rows of b become columns.
  [[nodiscard]] constexpr value product(value a, value b) const {
    const extents s = b.shape();
    const value rows_of_b = reshape(einsum<"rcjk->rjck">(b), {s[0], s[2], s[1] * s[3]}, at_);
    const value as_columns = rows_ == columns_ ? rows_of_b : deal_rows(collect_rows(rows_of_b, true), columns_, true);
    const value cut = reshape(as_columns, {columns_, s[0] * s[2] / columns_, s[1], s[3]}, at_);
    return einsum<"rxik,cjxk->rcij">(a, cut);
  }
  /// Of all rows from the strip's first one on.
  [[nodiscard]] constexpr value factor_strip(value strip) const {
    const extents s = strip.shape();
    const std::int64_t count = s[3] * columns_ / block_, m = s[2], width = s[3], b = block_;
    const auto body = [&](value k, value l) {
      const value zero = k * std::int64_t{0};
      const place row = place_of(k, rows_), column = place_of(k, columns_);
      const value across = dynamic_slice(l, std::array{row.part, zero, row.first, zero}, {1, columns_, b, width}, at_);
      const value known = select(global_index({1, columns_, b, width}, 1, 3) < k * b, across, 0.0);
      const value below = dynamic_slice(l, std::array{zero, column.part, zero, column.first}, {rows_, 1, m, b}, at_);
      const value panel = reshape(below, {rows_, m, b}, at_) - einsum<"rcik,xcjk->rij">(l, known);
      const value corner = reshape(dynamic_slice(panel, std::array{row.part, row.first, zero}, {1, b, b}, at_), {b, b}, at_);
      // cholesky takes (a + a^T) / 2: of the lower triangle and its mirror image that is the triangle.
      const value is_upper = iota<std::int64_t>(like_, {b, b}, 0, at_) < iota<std::int64_t>(like_, {b, b}, 1, at_);
      const value mirrored = select(is_upper, einsum<"ij->ji">(corner), corner);
      const value sides = einsum<"nj->jn">(reshape(panel, {rows_ * m, b}, at_));
      const value solved = einsum<"jn->nj">(triangular_solve(cholesky(mirrored, at_), sides, {}, at_));
      const value is_above = global_index({rows_, m, b}, 0, 1) < k * b + iota<std::int64_t>(like_, {rows_, m, b}, 2, at_);
      const value next = select(is_above, 0.0, reshape(solved, {rows_, m, b}, at_));
      return dynamic_update_slice(l, reshape(next, {rows_, 1, m, b}, at_), std::array{zero, column.part, zero, column.first},
                                  at_);
    };
    return fori_loop(trip_count(count, at_), body, strip);
  }
  /// l x = b, x and b dealt as the columns of l.
  [[nodiscard]] constexpr value solve_forward(value l, value b) const {
    const extents s = b.shape();
    const std::int64_t width = s[1], size = block_;
    const auto body = [&](value k, value x) {
      const value zero = k * std::int64_t{0};
      const place row = place_of(k, rows_), column = place_of(k, columns_);
      const value across = reshape(dynamic_slice(l, std::array{row.part, zero, row.first, zero}, {1, columns_, size, width}, at_),
                                   {columns_, size, width}, at_);
      const value known = select(global_index({columns_, size, width}, 0, 2) < k * size, across, 0.0);
      return solved_block(l, x, einsum<"cjk,ckn->jn">(known, x), row, column, column, false);
    };
    return fori_loop(trip_count(width * columns_ / size, at_), body, b);
  }
  /// l^T x = b, x and b dealt as the rows of l, from the last block on.
  [[nodiscard]] constexpr value solve_backward(value l, value b) const {
    const extents s = b.shape();
    const std::int64_t height = s[1], size = block_, count = height * rows_ / size;
    const auto body = [&](value trip, value x) {
      const value k = (count - 1) - trip, zero = trip * std::int64_t{0};
      const place row = place_of(k, rows_), column = place_of(k, columns_);
      const value below =
          reshape(dynamic_slice(l, std::array{zero, column.part, zero, column.first}, {rows_, 1, height, size}, at_),
                  {rows_, height, size}, at_);
      const value known = select(global_index({rows_, height, size}, 0, 1) < k * size + size, 0.0, below);
      return solved_block(l, x, einsum<"rij,rin->jn">(known, x), row, column, row, true);
    };
    return fori_loop(trip_count(count, at_), body, b);
  }
  /// x with block `own` replaced by the solution of the block on the diagonal.
  [[nodiscard]] constexpr value solved_block(value l, value x, value sum, place row, place column, place own,
                                             bool transposed) const {
    const std::int64_t b = block_, k = x.shape()[2];
    const value zero = row.part * std::int64_t{0};
    const value corner =
        reshape(dynamic_slice(l, std::array{row.part, column.part, row.first, column.first}, {1, 1, b, b}, at_), {b, b}, at_);
    const value sides = reshape(dynamic_slice(x, std::array{own.part, own.first, zero}, {1, b, k}, at_), {b, k}, at_) - sum;
    const value solved = triangular_solve(corner, sides, {.transposed = transposed}, at_);
    return dynamic_update_slice(x, reshape(solved, {1, b, k}, at_), std::array{own.part, own.first, zero}, at_);
  }

  value like_;
  std::int64_t block_, strips_, rows_ = 1, columns_ = 1, round_ = 1;
  location at_;
  resolved_sharding sharding_;
};

/// a with ones on the diagonal behind its last row, [n, n] -> [padded, padded].
constexpr value padded_by_ones(value a, std::int64_t padded, location at) {
  const std::int64_t n = a.shape()[0], more = padded - n;
  if (more == 0) return a;
  const value row = iota<std::int64_t>(a, {padded, padded}, 0, at), column = iota<std::int64_t>(a, {padded, padded}, 1, at);
  const value wide = pad(a, {0, 0}, {more, more}, 0, {}, at);
  return select(row >= n, select(equal(row, column), 1.0, wide), wide);
}

}  // namespace detail

constexpr value deal_matrix(value a, matrix_grid grid, location at) {
  constexpr const char* op = "deal_matrix";
  if (!a.is_valid()) return {};
  auto& g = *a.graph();
  const detail::one_call call(&g, op, {a.id()});
  const detail::dealt_blocks_of blocks(a, grid, at);
  if (!blocks.is_sound(op)) return detail::made(-1, a);
  const detail::extents s = a.shape();
  if (s.count == 2 && s[0] % (blocks.rows() * grid.block) == 0 && s[1] % (blocks.columns() * grid.block) == 0)
    return blocks.deal(a);
  return detail::made(
      g.fail(at, op, detail::mistake::extent,
             detail::text("is given ") << detail::shape_text(s) << "; it takes a matrix whose extents are multiples of "
                                       << blocks.rows() << " x " << blocks.columns() << " blocks of " << grid.block
                                       << ": pad it, or call what takes whole matrices"),
      a);
}
constexpr value collect_matrix(value t, matrix_grid grid, location at) {
  constexpr const char* op = "collect_matrix";
  if (!t.is_valid()) return {};
  const detail::one_call call(t.graph(), op, {t.id()});
  const detail::dealt_blocks_of blocks(t, grid, at);
  return blocks.are_blocks(t, false, op) ? blocks.collect(t) : detail::made(-1, t);
}
constexpr value dealt_cholesky(value t, matrix_grid grid, location at) {
  constexpr const char* op = "dealt_cholesky";
  if (!t.is_valid()) return {};
  const detail::one_call call(t.graph(), op, {t.id()});
  const detail::dealt_blocks_of blocks(t, grid, at);
  return blocks.are_blocks(t, true, op) ? blocks.factor(blocks.on_grid(t)) : detail::made(-1, t);
}
constexpr value dealt_solve(value l, value b, matrix_grid grid, location at) {
  constexpr const char* op = "dealt_solve";
  if (!l.is_valid() || !b.is_valid()) return {};
  const detail::one_call call(l.graph(), op, {l.id(), b.id()});
  const detail::dealt_blocks_of blocks(l, grid, at);
  if (!blocks.are_blocks(l, true, op)) return detail::made(-1, b);
  const detail::extents s = l.shape(), sides = b.shape();
  if (sides.count == 2 && sides[0] == s[2] * s[0] && b.type() == l.type()) return blocks.solve_both(blocks.on_grid(l), b);
  return detail::made(l.graph()->fail(at, op, detail::mistake::extent,
                                      detail::text("is given right-hand sides ")
                                          << detail::name_of(b.type()) << detail::shape_text(sides) << "; it takes "
                                          << detail::name_of(l.type()) << '[' << s[2] * s[0] << ",k]"),
                      b);
}

namespace detail {

/// Calls f(a, the grid, its extent) with a matrix that is padded to whole rounds of blocks.
template <class F>
constexpr value padded_to_rounds(value a, matrix_grid grid, const char* op, location at, F f) {
  dealt_blocks_of blocks(a, grid, at);
  if (!has_matrices(*a.graph(), a.graph()->nodes[static_cast<std::size_t>(a.id())], op, at) || !blocks.is_sound(op))
    return made(-1, a);
  const extents s = a.shape();
  if (s.count != 2)
    return made(a.graph()->fail(at, op, mistake::rank,
                                text("is given ") << shape_text(s) << "; over a grid it takes one matrix, of two dims"),
                a);
  blocks.shrink_blocks(s[0]);
  grid.block = blocks.block();
  const std::int64_t round = blocks.round(), padded = (s[0] + round - 1) / round * round;
  return f(deal_matrix(padded_by_ones(a, padded, at), grid, at), grid, padded);
}

}  // namespace detail

constexpr value cholesky(value a, matrix_grid grid, location at) {
  if (!a.is_valid()) return {};
  const std::int64_t n = a.shape().count > 0 ? a.shape()[0] : 0;
  return detail::padded_to_rounds(a, grid, "cholesky", at, [&](value t, const matrix_grid& fitting, std::int64_t padded) {
    const value l = collect_matrix(dealt_cholesky(t, fitting, at), fitting, at);
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
    const value x = dealt_solve(dealt_cholesky(t, fitting, at), sides, fitting, at);
    return padded == n ? x : slice(x, {0, 0}, {n, k}, {}, at);
  });
}

}  // namespace gspmd
