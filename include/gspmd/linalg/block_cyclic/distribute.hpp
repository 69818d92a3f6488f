// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "gspmd/linalg/solve.hpp"
#include "gspmd/ops/einsum.hpp"
#include "gspmd/ops/integers.hpp"
#include "gspmd/program/sharding.hpp"

/// Distributes one large matrix block-cyclically over a grid of devices, and collects it again.
namespace gspmd {

/// The block-cyclic distribution of a matrix, as in ScaLAPACK: blocks of `block` x `block` are assigned in rotation to
/// the devices along the axes `rows` and along the axes `cols`. The names are those of a sharding: one axis, several
/// ("x,y"), or none ("") for a dim that is not split.
///
/// More strips of columns take fewer flops and bytes, and more operators. The default of cholesky is 8 strips, or 2
/// sqrt(P) for P >= 17 devices. The default of solve is 4.
struct matrix_grid {
  dim_spec rows = _, cols = _;
  std::int64_t block = 64;
  std::int64_t strips = 0;  // of columns; 0: the default
};

/// Distributes the matrix [n, m] in blocks: the result is [R, C, n / R, m / C]. R and C are the sizes of the grid,
/// which splits dims 0 and 1. The last two dims are the local matrix of ScaLAPACK's process (r, c), row-major. n must
/// be a multiple of R * block, and m of C * block.
///
/// **Communication.** An all_to_all of (P - 1) / P of the shard. If an extent is not a multiple of R^2 (C^2) blocks,
/// also a shift between neighbours.
/// **Errors.** Another rank, an axis that the mesh does not have, extents that are not multiples of R (C) blocks. Pad
/// the matrix, or call cholesky or solve_positive with whole matrices, which pad.
/// **Example.**
///     const auto t = distribute_matrix(a, {.rows = "x", .cols = "y", .block = 64});
constexpr value distribute_matrix(value a, matrix_grid grid, location at = location::current());

/// Returns the matrix of distributed blocks: [R, C, p, q] -> [R p, C q]. Communication and errors: see
/// distribute_matrix.
constexpr value collect_matrix(value t, matrix_grid grid, location at = location::current());

namespace detail {

/// A grid on the mesh of a program, and the positions of the blocks on it.
class block_cyclic_matrix {
 public:
  constexpr block_cyclic_matrix(value x, const matrix_grid& grid, location at)
      : like_(x), block_(grid.block), strips_(grid.strips), at_(at) {
    const mesh_info& mesh = *x.graph()->mesh;
    const dim_spec dims[] = {grid.rows, grid.cols, _, _};
    sharding_ = resolve(mesh, dims, 4, 4);
    for (const auto& use : sharding_.value.layout.splits) (use.dim == 0 ? rows_ : columns_) *= mesh.shape.sizes[use.axis];
    round_ = std::lcm(rows_, columns_);
  }

  /// Records an error and returns false if the grid is wrong. are_blocks also checks that `t` has the shape of
  /// distributed blocks, of a square matrix if `is_square`.
  [[nodiscard]] constexpr bool is_sound(const char* op) const {
    if (!sharding_.problem.empty()) like_.graph()->fail(at_, op, sharding_.broken, sharding_.problem);
    else if (block_ < 1 || strips_ < 0)
      like_.graph()->fail(at_, op, mistake::bounds,
                          text("distributes blocks of ")
                              << block_ << " in " << strips_
                              << " strips; there is at least one of each, or 0 strips for the default");
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
                    text("is given ") << shape_text(s) << "; it takes the blocks that distribute_matrix makes of a "
                                      << (is_square ? "square " : "") << "matrix, [" << rows_ << "," << columns_
                                      << ",p,q], p and q multiples of " << block_);
    return false;
  }

  /// Returns true if b has one row for each row of the matrix in t, and the type of t. Otherwise records an error.
  [[nodiscard]] constexpr bool fits_rows(value t, value b, const char* op) const {
    const extents s = t.shape(), sides = b.shape();
    if (sides.count == 2 && sides[0] == s[2] * rows_ && b.type() == t.type()) return true;
    t.graph()->fail(at_, op, mistake::extent,
                    text("is given right-hand sides ") << name_of(b.type()) << shape_text(sides) << "; it takes "
                                                       << name_of(t.type()) << '[' << s[2] * rows_ << ",k]");
    return false;
  }

  [[nodiscard]] constexpr std::int64_t rows() const { return rows_; }
  [[nodiscard]] constexpr std::int64_t cols() const { return columns_; }
  [[nodiscard]] constexpr std::int64_t block() const { return block_; }
  /// Returns the number of strips, at most `most`. `most` is the number of rounds, because a strip consists of whole
  /// rounds of blocks.
  [[nodiscard]] constexpr std::int64_t strips(std::int64_t most, std::int64_t by_default) const {
    return std::min(most, strips_ > 0 ? strips_ : by_default);
  }
  [[nodiscard]] constexpr value like() const { return like_; }
  /// Returns the extent of a round: along both dims of the grid it gives each device the same number of blocks.
  [[nodiscard]] constexpr std::int64_t round() const { return round_ * block_; }
  /// Makes blocks smaller for a matrix that is smaller than a round, which would be mostly padding.
  constexpr void shrink_blocks(std::int64_t n) {
    const std::int64_t most = (n + round_ - 1) / round_;
    if (block_ > most && most > 0) block_ = most;
  }
  /// Returns the conjugate of x, or x if it is real.
  [[nodiscard]] constexpr value conjugated(value x) const { return made(matrix_terms(*x.graph(), at_).conjugated(x.id()), x); }
  [[nodiscard]] constexpr value on_grid(value t) const { return split_as(t, 0, 1); }

  // A reshape requires that each part of a contiguous matrix has whole rounds of blocks. So distribute and collect pad
  // to R times the extent of a round.
  /// `width` is the number of columns of a block; 0: the number of rows.
  [[nodiscard]] constexpr value distribute(value a, std::int64_t width = 0) const {
    const extents s = a.shape();
    const std::int64_t b = block_, w = width > 0 ? width : b, m = whole_rounds(s[0], rows_, b),
                       n = whole_rounds(s[1], columns_, w);
    const value wide = m == s[0] && n == s[1] ? a : pad(a, {0, 0}, {m - s[0], n - s[1]}, 0, {}, at_);
    const value cut =
        split_as(reshape(split_as(wide, 0, 1), {m / (rows_ * b), rows_, b, n / (columns_ * w), columns_, w}, at_), 0, 3);
    const value distributed = slice(split_as(einsum<"qrtscu->rcqtsu">(cut), 0, 1), {0, 0, 0, 0, 0, 0},
                                    {rows_, columns_, s[0] / (rows_ * b), b, s[1] / (columns_ * w), w}, {}, at_);
    return on_grid(reshape(distributed, {rows_, columns_, s[0] / rows_, s[1] / columns_}, at_));
  }
  [[nodiscard]] constexpr value collect(value t) const {
    const extents s = t.shape();
    const std::int64_t b = block_, m = s[2] * rows_, n = s[3] * columns_, wide_m = whole_rounds(m, rows_, b),
                       wide_n = whole_rounds(n, columns_, b);
    const value wide = pad(on_grid(t), {0, 0, 0, 0}, {0, 0, (wide_m - m) / rows_, (wide_n - n) / columns_}, 0, {}, at_);
    const value cut = reshape(wide, {rows_, columns_, wide_m / (rows_ * b), b, wide_n / (columns_ * b), b}, at_);
    const value in_order = split_as(einsum<"rcqtsu->qrtscu">(split_as(cut, 0, 1)), 0, 3);
    return slice(reshape(in_order, {wide_m, wide_n}, at_), {0, 0}, {m, n}, {}, at_);
  }
  /// Distributes rows [n, k] block-cyclically to `parts` parts: [parts, n / parts, k]. All devices must hold all rows
  /// before. The last dim may be split over the columns of the grid.
  [[nodiscard]] constexpr value distribute_rows(value x, std::int64_t parts, bool keeps_columns) const {
    const extents s = x.shape();
    const value cut = reshape(x, {s[0] / (parts * block_), parts, block_, s[1]}, at_);
    return reshape(einsum<"qrtk->rqtk">(split_as(cut, -1, keeps_columns ? 3 : -1)), {parts, s[0] / parts, s[1]}, at_);
  }
  /// Returns distributed rows in the order of the matrix; the inverse of distribute_rows.
  [[nodiscard]] constexpr value collect_rows(value x, bool keeps_columns) const {
    const extents s = x.shape();
    const value in_order = einsum<"rqtk->qrtk">(reshape(x, {s[0], s[1] / block_, block_, s[2]}, at_));
    return reshape(split_as(in_order, -1, keeps_columns ? 3 : -1), {s[0] * s[1], s[2]}, at_);
  }

  /// Splits dim `row` over the rows of the grid and dim `column` over its columns; -1: no dim.
  [[nodiscard]] constexpr value split_as(value x, int row, int column) const {
    resolved_sharding r;
    for (const auto& use : sharding_.value.layout.splits)
      if (const int dim = use.dim == 0 ? row : column; dim >= 0) r.value.layout.add_split(use.axis, dim);
    return annotate(x, r, "distribute_matrix", at_);
  }
  static constexpr std::int64_t whole_rounds(std::int64_t n, std::int64_t parts, std::int64_t block) {
    const std::int64_t round = parts * parts * block;
    return (n + round - 1) / round * round;
  }
  /// The position of block `k` of a dim: the part, and the block's first element in the part.
  struct place {
    value part, first;
  };
  [[nodiscard]] constexpr place place_of(value k, std::int64_t parts) const { return {k % parts, k / parts * block_}; }
  /// Returns the matrix indices of a tensor of `shape`, along the matrix dim whose parts are dim `part` and whose
  /// local elements are dim `along`.
  [[nodiscard]] constexpr value global_index(integers shape, int part, int along) const {
    const auto parts = shape[static_cast<std::size_t>(part)];
    const value local = iota<std::int64_t>(like_, shape, along, at_);
    return (local / block_ * parts + iota<std::int64_t>(like_, shape, part, at_)) * block_ + local % block_;
  }

 private:
  value like_;
  std::int64_t block_, strips_, rows_ = 1, columns_ = 1, round_ = 1;
  location at_;
  resolved_sharding sharding_;
};

/// Appends ones on the diagonal after the last row: [n, n] -> [padded, padded].
constexpr value padded_by_ones(value a, std::int64_t padded, location at) {
  const std::int64_t n = a.shape()[0], more = padded - n;
  if (more == 0) return a;
  const value row = iota<std::int64_t>(a, {padded, padded}, 0, at), column = iota<std::int64_t>(a, {padded, padded}, 1, at);
  const value wide = pad(a, {0, 0}, {more, more}, 0, {}, at);
  return where(row >= n, where(equal(row, column), 1.0, wide), wide);
}

}  // namespace detail

constexpr value distribute_matrix(value a, matrix_grid grid, location at) {
  constexpr const char* op = "distribute_matrix";
  if (!a.is_valid()) return {};
  auto& g = *a.graph();
  const detail::one_call call(&g, op, {a.id()});
  const detail::block_cyclic_matrix blocks(a, grid, at);
  if (!blocks.is_sound(op)) return detail::made(-1, a);
  const detail::extents s = a.shape();
  if (s.count == 2 && s[0] % (blocks.rows() * grid.block) == 0 && s[1] % (blocks.cols() * grid.block) == 0)
    return blocks.distribute(a);
  return detail::made(
      g.fail(at, op, detail::mistake::extent,
             detail::text("is given ") << detail::shape_text(s) << "; it takes a matrix whose extents are multiples of "
                                       << blocks.rows() << " x " << blocks.cols() << " blocks of " << grid.block
                                       << ": pad it, or call cholesky, solve or solve_positive, which take whole matrices"),
      a);
}
constexpr value collect_matrix(value t, matrix_grid grid, location at) {
  constexpr const char* op = "collect_matrix";
  if (!t.is_valid()) return {};
  const detail::one_call call(t.graph(), op, {t.id()});
  const detail::block_cyclic_matrix blocks(t, grid, at);
  return blocks.are_blocks(t, false, op) ? blocks.collect(t) : detail::made(-1, t);
}

namespace detail {

/// Calls f(t, grid, padded extent). t is the matrix `a`, padded to whole rounds of blocks and distributed.
template <class F>
constexpr value padded_to_rounds(value a, matrix_grid grid, const char* op, location at, F f) {
  block_cyclic_matrix blocks(a, grid, at);
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
  return f(distribute_matrix(padded_by_ones(a, padded, at), grid, at), grid, padded);
}

}  // namespace detail
}  // namespace gspmd
