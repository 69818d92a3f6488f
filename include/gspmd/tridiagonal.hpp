// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/kernels/tridiagonal.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/ops/tridiagonal_op.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/shape.hpp"

namespace gspmd {

/// How tridiagonal_solve goes about it.
struct tridiagonal_options {
  /// Into how many parts each system is cut, of at least two unknowns. Where the last dim is split: the number of devices along it.
  std::int64_t parts = 1;
};

/// x of the systems lower_i x_{i-1} + diagonal_i x_i + upper_i x_{i+1} = b_i along the last dim; all are of one shape, [..., n], float,
/// double, c64 or c128. The first of `lower` and the last of `upper` are not read. There is no pivoting: for matrices that are diagonally dominant, or symmetric and positive
/// definite; others may lose digits, and a pivot that is 0 gives infinities and NaNs.
///
/// Global and local: dims before the last one may be split, and nothing is communicated then. 8 n flops a system, 32 n of complex numbers; scratch for 8 systems.
///
/// In parts (Wang 1981, A parallel method for tridiagonal equations): each part eliminates its inner unknowns, of which it solves three
/// systems; the last unknowns of the parts are a tridiagonal system themselves, that of `parts` unknowns. Where the last dim is split into so many parts, that
/// one is all that is sent: four numbers a part and line, gathered, or brought to another dim and back, and four between neighbours.
///
/// Gradients: by another system, and a product. Errors: other elements, other shapes, more than 8 dims, fewer than two unknowns a part; without `parts` a
/// last dim that is split moves to another dim, or is an error that says so.
///
///     const auto x = tridiagonal_solve(-r, 1.0 + 2.0 * r, -r, u);              // an implicit step of diffusion along the last dim
///     const auto x = tridiagonal_solve(l, d, u, b, {.parts = 8});             // [n] over 8 devices
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
           text("is given ") << name_of(type)
                             << "; it takes float, double and complex numbers of these: convert before and after it");
  else if (shape.count < 1 || shape.count + (parts > 1 ? 1 : 0) > most_matrix_dims)
    g.fail(at, op, mistake::rank,
           text("is given ") << shape_text(shape) << "; it takes 1 to " << most_matrix_dims
                             << " dims, one less in parts, the last of which are the systems");
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
/// Of tensors that fit. The operator has at least two dims.
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
/// Wang's method, of [..., n].
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
    const value l = cut(select(index > 0, lower, 0.0), 0), d = cut(diagonal, 1), u = cut(select(index < n_ - 1, upper, 0.0), 0),
                r = cut(b, 0);
    const value li = inner(l), di = inner(d), ui = inner(u);
    const auto by_inner = [&](value side) { return add_tridiagonal(li, di, ui, side, at_); };
    // Inner unknowns are y - v (the last unknown of the part before) - w (that of their own).
    const value y = by_inner(inner(r)), v = by_inner(only(li, 0)), w = by_inner(only(ui, inner_ - 1));
    const auto next = [&](value x) { return shift(x, last_, 1, at_); };
    const value ll = column(l, inner_), lu = column(u, inner_);
    const auto from_left = [&](value x) { return ll * column(x, inner_ - 1); };
    const auto from_right = [&](value x) { return lu * next(column(x, 0)); };
    const value joint = add_tridiagonal(-from_left(v), column(d, inner_) - from_left(w) - from_right(v), -from_right(w),
                                        column(r, inner_) - from_left(y) - from_right(y), at_, true);
    dim_places places;
    for (int k = 0; k <= last_; ++k) places.push_back(static_cast<std::int8_t>(k));
    const auto wide = [&](value x) { return made(add_broadcast(*x.graph(), x.id(), in_parts(inner_), places, at_), y); };
    const value found = y - v * wide(shift(joint, last_, -1, at_)) - w * wide(joint);
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
  /// Padded with a number to parts of one length, and cut into them.
  [[nodiscard]] constexpr value cut(value x, double number) const {
    const auto more = parts_ * length_ - n_;
    return reshape(more == 0 ? x : padded(x, 0, more, number), in_parts(length_), at_);
  }
  /// From `begin` to `end` along the last dim.
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
  /// Of each part, one unknown: [..., parts].
  [[nodiscard]] constexpr value column(value x, std::int64_t i) const {
    return reshape(range(x, i, i + 1), with_last(parts_), at_);
  }
  /// One inner unknown, and zeros around it.
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
