// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/barrier.hpp"
#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/reduce.hpp"
#include "gspmd/detail/ops/reshard.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Floats split into parts that are added without rounding, in any order and grouping.
///
/// Elements are divided by a power of two that is at least as large as each element. Part k of each element is the
/// nearest multiple of grid k, which is the same for all elements:
///
///   q[k] = (r + c) - c,  c = 1.5 * 2^52 * grid[k]      doubles near c are the multiples of grid[k]
///   r    = r - q[k]                                    exact, at most half of the grid; the next part represents it
///
/// A double holds 2^53 steps of the grid. So n terms of at most 2^53 / n steps each have sums that are exact doubles.
///
/// **Source.** The extraction is that of Rump, Ogita and Oishi (Accurate floating-point summation, 2008). It uses one
/// largest element, as in Demmel and Nguyen (Fast reproducible floating-point summation, 2013, 4). Products use the
/// splitting of Ozaki, Ogita, Oishi and Rump (2012), which Mukunoki, Ogita and Ozaki made reproducible (2019). No
/// multiplication rounds where rounding matters, so a fused multiply-add changes no bit.
namespace gspmd::detail {

/// The number of parts, and the size of the largest element of a part: at most 2^bits steps of the part's grid.
struct exact_cut {
  int parts = 1, bits = 1;

  /// The exponent of the grid of part k: the grid is 2^-digit(k).
  [[nodiscard]] constexpr int digit(int k) const { return (k + 1) * (bits + 1) - 1; }
};

constexpr int log2_from_above(std::int64_t n) {
  int log2 = 0;
  while (log2 < 62 && (std::int64_t{1} << log2) < n) ++log2;
  return log2;
}
/// Returns 2^e, for exponents of normal doubles.
constexpr double power_of_two(int e) {
  double x = 1;
  for (; e > 0; --e) x *= 2;
  for (; e < 0; ++e) x /= 2;
  return x;
}
constexpr int digits_of(dtype type) { return type == dtype::f64 ? 53 : type == dtype::f32 ? 24 : type == dtype::f16 ? 11 : 8; }

/// Returns the parts for a sum. The error of the sum, over all terms, is at most 2^-digits of the largest element.
///   1024 terms: 1 part of 43 bits for 24 digits (float), 2 parts of 43 bits for 53 digits (double)
constexpr exact_cut cut_of_sum(std::int64_t terms, int digits) {
  const int log2 = log2_from_above(terms);
  exact_cut cut{1, 53 - log2 < 51 ? 53 - log2 : 51};
  while (log2 + 1 - cut.parts * (cut.bits + 1) > -digits) ++cut.parts;
  return cut;
}
/// Returns the parts for a sum of products. Only the products of parts i and j with i + j < parts are computed. The
/// error is at most `terms` times 2^-digits of the product of the largest elements. All products with the same i + j
/// have one grid, so their sum is exact too.
constexpr exact_cut cut_of_products(std::int64_t terms, int digits) {
  const int log2 = log2_from_above(terms);
  for (exact_cut cut;; ++cut.parts) {
    cut.bits = (53 - log2 - log2_from_above(cut.parts)) / 2;
    // The largest omitted products are parts + 1 products of parts. The powers of two are up to twice the largest
    // elements.
    if (log2_from_above(cut.parts + 2) + 2 - cut.parts * (cut.bits + 1) <= -digits) return cut;
  }
}
/// The largest number of terms. With more terms, a part would have too few digits.
inline constexpr std::int64_t most_exact_terms = std::int64_t{1} << 40;

/// The facts of the identity on a sum of parts. Sums of several grids are added after it, with rounding, so devices
/// reduce partial sums before it.
struct exact_total : barrier_op {
  static constexpr operator_class meets(const node&, monoid) { return {}; }
};
/// The identity on a sum of one part. Shapes and splits are those of barrier_op.
struct exact_sum_op : exact_total {
  static constexpr const char* name = "exact_sum";
};
/// The identity on a sum of products of parts. It has no gradient. Shapes and splits are those of barrier_op.
struct exact_product_op : exact_total {
  static constexpr const char* name = "exact_product";
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    b.program().fail(
        n.at, "grad", mistake::no_derivative,
        "has no gradient, because it is reproducible already; take the gradient inside: reproducible([](...) { ... grad(...) })");
  }
};
template <class Op>
constexpr int add_exact_total(graph& g, int x, location at) {
  if (x < 0) return -1;
  const node& from = g.nodes[static_cast<std::size_t>(x)];
  node n;
  n.op = code_of<Op>;
  n.type = from.type;
  n.shape = from.shape;
  n.at = at;
  n.operands.push_back(x);
  return g.add(n);
}

/// The identity on operand 0, with the gradient sent to operand 1. The operators between the two operands have no
/// gradients of their own. They divide by powers of two and multiply again, and a gradient through both would overflow.
struct exact_link_op : shard_alike_op {
  static constexpr const char* name = "exact_link";
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    int dy = b.dy().id();
    if (dy < 0) return;
    if (const dtype type = b.at(n.operands[1]).type; b.at(dy).type != type)
      dy = add_elementwise(b.program(), code_of<cast_op>, {dy}, n.at, type);
    b.send(1, dy);
  }
};
constexpr int add_exact_link(graph& g, int x, int derived_from, location at) {
  if (x < 0 || derived_from < 0) return -1;
  const node& from = g.nodes[static_cast<std::size_t>(x)];
  node n;
  n.op = code_of<exact_link_op>;
  n.type = from.type;
  n.shape = from.shape;
  n.at = at;
  n.operands.push_back(x);
  n.operands.push_back(derived_from);
  return g.add(n);
}

/// A float tensor in parts.
struct exact_operand {
  vec<int> parts;          // double, in the shape of the tensor
  int scale = -1;          // double, of the kept dims: the factor of the parts
  int further_scale = -1;  // the same, multiplied after `scale`; -1: none
  int is_finite = -1;      // bool, of the kept dims
  int if_not = -1;         // double, of the kept dims: the sum if it is not finite
};

/// Splits `x` into parts. Elements along `dims` are divided by one number, which is derived from the largest element.
class exact_parts {
 public:
  constexpr exact_parts(graph& g, int x, dim_mask dims, location at) : g_(g), at_(at), dims_(dims), x_(x) {
    const node& from = g.nodes[static_cast<std::size_t>(x)];
    type_ = from.type;
    shape_ = from.shape;
    for (int d = 0; d < shape_.count; ++d)
      if ((dims & dim_bit(d)) == 0) kept_.push_back(static_cast<std::int8_t>(d));
  }

  /// Splits for a sum by rows. The results of rows with elements that are not finite are in `if_not`.
  constexpr exact_operand cut_rows(const exact_cut& how) {
    exact_operand result;
    const term largest = largest_of_sum(result);
    cut(result, how, as_double(term(g_, x_, at_)), largest, true, -1);
    return result;
  }
  /// Splits for a sum without rows. An element that is not finite is stored unchanged in the first part, so sums with
  /// it are as in every other order. `is_added` is a bool tensor: elements where it is false are not added and count as
  /// 0. -1: all are added.
  constexpr exact_operand cut_all(const exact_cut& how, int is_added) {
    exact_operand result;
    const term x(g_, x_, at_);
    const term is_finite = term::of<compare_eq_op>(x - x, x.number(0));
    const term counts = is_added < 0 ? is_finite : term::of<and_op>(is_finite, term(g_, is_added, at_));
    const term finite = pick(counts, x, x.number(0));
    cut(result, how, as_double(finite), as_double(reduced(term::of<abs_op>(finite))), true, is_finite.id());
    return result;
  }
  constexpr exact_operand cut_factor(const exact_cut& how) {
    exact_operand result;
    const term x(g_, x_, at_);
    cut(result, how, as_double(x), as_double(reduced(term::of<abs_op>(x))), false, -1);
    return result;
  }

 private:
  constexpr void cut(exact_operand& result, const exact_cut& how, term x, term largest, bool is_sum, int is_finite) {
    const bool is_wide = type_ == dtype::f64;
    term m = term::of<max_op>(largest, largest.number(is_wide ? 0x1p-1022 : 0x1p-149));
    if (is_wide) {  // keeps the largest element times 2^53, and its reciprocal, within the doubles
      const auto chosen = [&](double if_large, double if_small) {
        const term small = pick(term::of<compare_lt_op>(m, m.number(0x1p-400)), m.number(if_small), m.number(1));
        return pick(term::of<compare_gt_op>(m, m.number(0x1p600)), m.number(if_large), small);
      };
      const term before = chosen(0x1p-600, 0x1p500);
      result.further_scale = chosen(0x1p600, 0x1p-500).id();
      x = x * spread(before);
      m = m * before;
    }
    const term scale = power_from_above(m);
    result.scale = scale.id();
    term left = x * spread(scale.number(1) / scale);
    for (int k = 0; k < how.parts && !g_.failed(); ++k) {
      const term c = left.number(1.5 * power_of_two(52 - how.digit(k)));
      term part = (left + c) - c;
      // Only the last part has a gradient.
      if (k + 1 < how.parts) {
        part = term::of<stop_gradient_op>(part);
        left = left - part;
      }
      const term whole = as_double(term(g_, x_, at_));
      if (k == 0 && is_finite >= 0) part = pick(term(g_, is_finite, at_), part, term::of<stop_gradient_op>(whole));
      if (is_sum && k + 1 == how.parts) part = term(g_, add_exact_link(g_, part.id(), whole.id(), at_), at_);
      result.parts.push_back(part.id());
    }
  }
  [[nodiscard]] static constexpr term pick(term pred, term a, term b) { return term::of<where_op>(pred, a, b); }
  [[nodiscard]] constexpr term as_double(term x) const {
    const auto to = [&](term from, dtype type) {
      return term(g_, add_elementwise(g_, code_of<cast_op>, {from.id()}, at_, type), at_);
    };
    if (type_ == dtype::f64) return x;
    return to(is_narrow(type_) ? to(x, dtype::f32) : x, dtype::f64);
  }
  [[nodiscard]] constexpr term reduced(term x) const {
    const term all(g_, dims_ == 0 ? x.id() : add_reduce(g_, x.id(), dims_, monoid::max, at_), at_);
    return term::of<stop_gradient_op>(all);
  }
  [[nodiscard]] constexpr term spread(term x) const {
    return {g_, kept_.count == shape_.count ? x.id() : add_broadcast(g_, x.id(), shape_, kept_, at_), at_};
  }
  /// Returns the largest absolute value, from the largest and the smallest element. If the elements have infinities,
  /// the sum is the sum of the infinities.
  constexpr term largest_of_sum(exact_operand& result) const {
    const term x(g_, x_, at_);
    const term above = as_double(reduced(x)), below = as_double(reduced(-x));
    const term largest = term::of<max_op>(above, below);
    result.is_finite = term::of<compare_le_op>(largest, largest.number(0x1.fffffffffffffp1023)).id();
    result.if_not = (above - below).id();
    return largest;
  }
  /// Returns the smallest power of two that is not less than m > 0 (Rump, Ogita and Oishi 2008, 3.6).
  [[nodiscard]] static constexpr term power_from_above(term m) {
    const term p = m * m.number(0x1p53);
    const term power = (p + m) - p;
    return pick(term::of<compare_eq_op>(power, power.number(0)), m, power);
  }

  graph& g_;
  location at_;
  dim_mask dims_;
  int x_;
  dtype type_ = dtype::f32;
  extents shape_;
  inline_vec<std::int8_t, max_rank> kept_;
};

}  // namespace gspmd::detail
