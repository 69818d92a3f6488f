// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/linalg/detail/tridiagonal_kernel.hpp"
#include "gspmd/linalg/detail/tridiagonal_op.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

namespace gspmd {

/// Options of tridiagonal_solve.
struct tridiagonal_options {
  /// The number of parts of each system. Each part has at least two unknowns. If the last dim is split, use the number
  /// of devices along it.
  std::int64_t parts = 1;
};

/// Returns x of the systems lower_i x_{i-1} + diagonal_i x_i + upper_i x_{i+1} = b_i along the last dim.
///
/// The first element of `lower` and the last element of `upper` are not read. A system takes 8 n flops, or 32 n if
/// complex. The kernel needs scratch memory of 2 n numbers for each of 8 systems. The gradient is another system and a
/// product.
/// There is no pivoting. Use it for matrices that are diagonally dominant, or symmetric and positive definite. Other
/// matrices may lose digits, and a pivot of 0 gives infinities and NaNs.
///
/// With several parts, each part eliminates its inner unknowns, and solves three systems for that. The last unknowns of
/// the parts form a tridiagonal system of `parts` unknowns.
///
/// **Shapes.** lower, diagonal, upper, b [..., n] -> [..., n], all of the same shape and type: float, double, c64 or
/// c128.
/// **Communication.** None if only dims before the last one are split. If the last dim is split into `parts` parts,
/// only the system of the last unknowns is sent. That system has four numbers for each part and line, which are
/// gathered, or moved to another dim and back. Neighbours exchange four more numbers.
/// **Errors.** Other element types, different shapes, more than 8 dims (7 with several parts), or fewer than two
/// unknowns in a part. Without `parts`, the planner moves the split of the last dim to another dim; if it cannot, that
/// is an error.
/// **Example.**
///
///     const auto x = tridiagonal_solve(-r, 1.0 + 2.0 * r, -r, u);  // an implicit step of diffusion along the last dim
///     const auto x = tridiagonal_solve(l, d, u, b, {.parts = 8});             // [n] over 8 devices
///
/// **Source.** Wang 1981, A parallel method for tridiagonal equations.
constexpr value tridiagonal_solve(value lower, value diagonal, value upper, value b, tridiagonal_options options = {},
                                  location at = location::current());

namespace detail {

constexpr bool fits_tridiagonal(graph& g, const value* all, std::int64_t parts, location at) {
  constexpr const char* op = tridiagonal_op::name;
  const extents shape = all[3].shape();
  const auto type = all[3].type();
  const std::int64_t n = shape.count > 0 ? shape[shape.count - 1] : 0;
  if (part_of(type) != dtype::f32 && part_of(type) != dtype::f64)
    g.fail(at, op, mistake::type,
           text("is given ") << name_of(type) << "; it takes float, double and complex numbers; convert before and after it");
  else if (shape.count < 1 || shape.count + (parts > 1 ? 1 : 0) > most_matrix_dims)
    g.fail(at, op, mistake::rank,
           text("is given ") << shape_text(shape) << "; it takes 1 to " << most_matrix_dims
                             << " dims, one less in parts; the last dim has the unknowns of a system");
  else if (parts < 1 || (parts > 1 && n < 2 * parts))
    g.fail(at, op, mistake::bounds,
           text("cuts systems of ") << n << " unknowns into " << parts
                                    << " parts; there is at least one, and each has two unknowns");
  else {
    for (int k = 0; k < 3; ++k) {
      if (all[k].type() == type && all[k].shape() == shape) continue;
      constexpr const char* names[] = {"lower", "diagonal", "upper"};
      g.fail(at, op, all[k].type() == type ? mistake::extent : mistake::type,
             text("b is ") << name_of(type) << shape_text(shape) << " and the " << names[k] << " diagonal "
                           << name_of(all[k].type()) << shape_text(all[k].shape()) << "; they are of one type and shape");
      return false;
    }
    return true;
  }
  return false;
}
/// Adds the operator for tensors that fits_tridiagonal accepts. The operator has at least two dims, so a tensor with a
/// single dim is reshaped.
constexpr value add_tridiagonal(value lower, value diagonal, value upper, value b, location at, bool may_replicate = false) {
  auto& g = *b.graph();
  const extents shape = b.shape();
  value all[] = {lower, diagonal, upper, b};
  if (shape.count == 1)
    for (value& v : all) v = reshape(v, {1, shape[0]}, at);
  value x = made(add_tridiagonal_solve(g, {all[0].id(), all[1].id(), all[2].id(), all[3].id()}, at), all[3]);
  if (may_replicate) x = allow_replication(x);
  return shape.count == 1 ? reshape(x, shape, at) : x;
}
/// Wang's method for systems along the last dim of [..., n].
class tridiagonal_parts {
 public:
  constexpr tridiagonal_parts(const extents& shape, std::int64_t parts, location at)
      : whole_(shape),
        last_(shape.count - 1),
        n_(shape[last_]),
        parts_(parts),
        length_((n_ + parts - 1) / parts),
        inner_(length_ - 1),
        at_(at) {}

  [[nodiscard]] constexpr value solved(value lower, value diagonal, value upper, value b) const {
    const value index = iota<std::int64_t>(b, whole_, last_, at_);
    const value l = cut(where(index > 0, lower, 0.0), 0), d = cut(diagonal, 1), u = cut(where(index < n_ - 1, upper, 0.0), 0),
                r = cut(b, 0);
    const value li = inner(l), di = inner(d), ui = inner(u);
    const auto by_inner = [&](value side) { return add_tridiagonal(li, di, ui, side, at_); };
    // Inner unknowns are y - v * (the last unknown of the previous part) - w * (the last unknown of their own part).
    const value y = by_inner(inner(r)), v = by_inner(only(li, 0)), w = by_inner(only(ui, inner_ - 1));
    const auto next = [&](value x) { return shift(x, 1, along(last_), at_); };
    const value ll = column(l, inner_), lu = column(u, inner_);
    const auto from_left = [&](value x) { return ll * column(x, inner_ - 1); };
    const auto from_right = [&](value x) { return lu * next(column(x, 0)); };
    const value joint = add_tridiagonal(-from_left(v), column(d, inner_) - from_left(w) - from_right(v), -from_right(w),
                                        column(r, inner_) - from_left(y) - from_right(y), at_, true);
    dim_places places;
    for (int k = 0; k <= last_; ++k) places.push_back(static_cast<std::int8_t>(k));
    const auto wide = [&](value x) { return made(add_broadcast(*x.graph(), x.id(), in_parts(inner_), places, at_), y); };
    const value found = y - v * wide(shift(joint, -1, along(last_), at_)) - w * wide(joint);
    const value all = concatenate({found, reshape(joint, in_parts(1), at_)}, last_ + 1, at_);
    return range(reshape(all, with_last(parts_ * length_), at_), 0, n_);
  }

 private:
  [[nodiscard]] constexpr extents with_last(std::int64_t extent) const {
    extents shape = whole_;
    shape[last_] = extent;
    return shape;
  }
  [[nodiscard]] constexpr extents in_parts(std::int64_t length) const {
    extents shape = with_last(parts_);
    shape.push_back(length);
    return shape;
  }
  /// Pads x with `number` to parts of equal length, and cuts it into these parts.
  [[nodiscard]] constexpr value cut(value x, double number) const {
    const auto more = parts_ * length_ - n_;
    return reshape(more == 0 ? x : padded(x, 0, more, number), in_parts(length_), at_);
  }
  /// Returns the range from `begin` to `end` along the last dim.
  [[nodiscard]] constexpr value range(value x, std::int64_t begin, std::int64_t end) const {
    extents from(x.rank(), 0), to = x.shape();
    from[from.count - 1] = begin;
    to[to.count - 1] = end;
    return slice(x, from, to, {}, at_);
  }
  [[nodiscard]] constexpr value padded(value x, std::int64_t before, std::int64_t behind, double number) const {
    extents low(x.rank(), 0), high(x.rank(), 0);
    low[low.count - 1] = before;
    high[high.count - 1] = behind;
    return pad(x, low, high, number, {}, at_);
  }
  [[nodiscard]] constexpr value inner(value x) const { return range(x, 0, inner_); }
  /// Returns unknown `i` of each part: [..., parts].
  [[nodiscard]] constexpr value column(value x, std::int64_t i) const {
    return reshape(range(x, i, i + 1), with_last(parts_), at_);
  }
  /// Returns inner unknown `i`, with zeros around it.
  [[nodiscard]] constexpr value only(value x, std::int64_t i) const { return padded(range(x, i, i + 1), i, inner_ - 1 - i, 0); }

  extents whole_;
  int last_;
  std::int64_t n_, parts_, length_, inner_;
  location at_;
};

}  // namespace detail

constexpr value tridiagonal_solve(value lower, value diagonal, value upper, value b, tridiagonal_options options, location at) {
  if (!lower.is_valid() || !diagonal.is_valid() || !upper.is_valid() || !b.is_valid()) return {};
  auto& g = *b.graph();
  const detail::one_call call(&g, "tridiagonal_solve", {lower.id(), diagonal.id(), upper.id(), b.id()});
  const value all[] = {lower, diagonal, upper, b};
  const detail::extents shape = b.shape();
  if (!detail::fits_tridiagonal(g, all, options.parts, at)) return detail::made(-1, b);
  if (options.parts > 1) return detail::tridiagonal_parts(shape, options.parts, at).solved(all[0], all[1], all[2], all[3]);
  return detail::add_tridiagonal(lower, diagonal, upper, b, at);
}

}  // namespace gspmd
