// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "support/all_operators.hpp"
#include "support/reference.hpp"
#include "support/region_walk.hpp"

namespace reference {

/// Bounds the difference between a program's elements and those of the naive evaluator, for other orders of sums and
/// other roundings. Each element of each value has a radius. The radius is infinite if no bound exists. Examples are a
/// comparison of numbers that are closer than their radii, and a sum that may overflow. Integers and booleans have the
/// radius 0 or infinity.
///
/// A radius is propagated by the operator's own sensitivity, and grows by a few roundings of the element type. An
/// operator that moves elements moves their radii in the same way; the naive evaluator computes these.
class rounding {
 public:
  std::vector<host_array> values;  // by node
  std::vector<host_array> radii;   // by node, in f64

  rounding(const graph& g, const std::vector<host_array>& inputs) : values(g.nodes.size()), radii(g.nodes.size()), graph_(g) {
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      values[static_cast<std::size_t>(g.inputs[k])] = inputs[k];
      radii[static_cast<std::size_t>(g.inputs[k])] = host_array(dtype::f64, inputs[k].shape);
    }
    is_known_ = region_walk<rounding>(g, *this, most_nodes).is_finished() && is_known_;
  }
  /// Returns true if values can be compared. Returns false if loops run too long, or if a predicate that selects a
  /// branch is unknown.
  [[nodiscard]] bool is_known() const { return is_known_; }

 private:
  friend class region_walk<rounding>;
  static constexpr std::int64_t most_nodes = 3000;  // that are computed

  void compute(int i) {
    if (at(i).op == opcode::parameter) return;
    value(i) = evaluate_node(graph_, i, values);
    radius(i) = radius_of(i);
  }
  void copy(int to, int from) {
    value(to) = host_array(value(from));
    radius(to) = host_array(radius(from));
  }
  void count(int loop, std::int64_t t) {
    value(loop) = host_array(dtype::s64, {});
    value(loop).ints[0] = t;
    radius(loop) = host_array(dtype::f64, {});
  }
  bool holds(int i) {
    is_known_ = is_known_ && radius(i).reals[0] == 0;
    return is_known_ && value(i).ints[0] != 0;
  }

  static constexpr double unknown = std::numeric_limits<double>::infinity();

  /// Returns twice the unit roundoff of the type; smallest() returns the possible loss of a subnormal number.
  static double epsilon(dtype type) {
    return type == dtype::bf16 ? 0x1p-7 : type == dtype::f16 ? 0x1p-10 : type == dtype::f32 ? 0x1p-23 : 0x1p-52;
  }
  static double smallest(dtype type) {
    return type == dtype::f16 ? 0x1p-14 : type == dtype::f32 || type == dtype::bf16 ? 0x1p-126 : 0x1p-1022;
  }
  static double largest(dtype type) {
    return type == dtype::f16 ? 65504 : type == dtype::f32 || type == dtype::bf16 ? 3.38e38 : 1.79e308;
  }

  /// Returns the radius of a number that was computed with `error` and rounded `roundings` times. `weight` is the
  /// largest magnitude among its intermediate values.
  static double rounded(dtype type, double error, double weight, double roundings) {
    const double r = error + roundings * (epsilon(type) * weight + smallest(type));
    return std::isnan(r) || !(weight < largest(type) / 2) ? unknown : r;
  }

  [[nodiscard]] const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] host_array& value(int i) { return values[static_cast<std::size_t>(i)]; }
  [[nodiscard]] host_array& radius(int i) { return radii[static_cast<std::size_t>(i)]; }

  /// Returns the naive evaluator's result of node `i`, computed in f64 on other operands.
  [[nodiscard]] host_array on(int i, std::vector<host_array> operands) {
    graph one;
    node n = at(i);
    n.type = dtype::f64;
    n.operands.clear();
    for (std::size_t k = 0; k < operands.size(); ++k) {
      one.nodes.push_back({});
      n.operands.push_back(static_cast<int>(k));
    }
    one.nodes.push_back(n);
    return evaluate_node(one, static_cast<int>(operands.size()), operands);
  }
  /// Returns the magnitudes of operand k, plus its radii if `with_radius`. The magnitudes of integers are 0, so only
  /// radii remain.
  [[nodiscard]] host_array magnitudes(int node, bool with_radius) {
    host_array m(dtype::f64, value(node).shape);
    for (std::size_t e = 0; e < m.size(); ++e)
      m.reals[e] = (value(node).floating() ? std::fabs(value(node).reals[e]) : 0) + (with_radius ? radius(node).reals[e] : 0);
    return m;
  }

  /// Returns true if all elements are known exactly and are multiples of 1 / parts. Sums up to 2^20 are then exact in
  /// any order.
  [[nodiscard]] bool are_multiples(int node, double parts) {
    for (const double x : radius(node).reals)
      if (x != 0) return false;
    for (const double x : value(node).reals)
      if (!(std::fabs(x) < 0x1p20) || x * parts != std::floor(x * parts)) return false;
    return true;
  }

  host_array radius_of(int i) {
    const node& n = at(i);
    host_array r(dtype::f64, value(i).shape);
    switch (n.op.code) {
      case opcode::constant:
      case opcode::iota: return r;
      default: break;
    }
    if (n.op == gspmd::detail::code_of<gspmd::detail::einsum_op>) {
      einsum_radius(i, r);
      return r;
    }
    if (n.op == gspmd::detail::code_of<gspmd::detail::reduce_op>) {
      reduce_radius(i, r);
      return r;
    }
    if (gspmd::detail::is_elementwise(n.op)) {
      for (std::size_t e = 0; e < r.size(); ++e) r.reals[e] = elementwise_radius(i, e);
      return r;
    }
    if (looks_up_or_orders(n)) {
      const node& maker = n.op == opcode::result ? at(n.operands[0]) : n;
      bool is_exact = !adds_up(maker) || !value(i).floating();
      for (const int o : maker.operands)
        for (const double x : radius(o).reals) is_exact = is_exact && x == 0;
      for (double& x : r.reals) x = is_exact ? 0 : unknown;
      return r;
    }
    std::vector<host_array> operands;
    for (const int o : n.operands) operands.push_back(radius(o));
    return on(i, std::move(operands));
  }

  /// Returns true if the values of the operands determine which elements the result has. A small change of one operand
  /// may change all elements. A further result of an operator is treated in the same way.
  [[nodiscard]] static bool looks_up_or_orders(const node& n) {
    namespace ir = gspmd::detail;
    return n.op == opcode::result || n.op == ir::code_of<ir::gather_op> || n.op == ir::code_of<ir::scatter_set_op> ||
           n.op == ir::code_of<ir::top_k_op> || n.op == ir::code_of<ir::sort_op> || adds_up(n);
  }
  [[nodiscard]] static bool adds_up(const node& n) {
    namespace ir = gspmd::detail;
    return n.op == ir::code_of<ir::scatter_op> || n.op == ir::code_of<ir::scan_op> || n.op == ir::code_of<ir::reduce_by_op> ||
           n.op == ir::code_of<ir::scan_by_op>;
  }

  // ---- elementwise ----

  double elementwise_radius(int i, std::size_t e) {
    const node& n = at(i);
    const auto real = [&](int k) { return value(n.operands[k]).reals[e]; };
    const auto r = [&](int k) { return radius(n.operands[k]).reals[e]; };
    bool exact = true;
    for (int k = 0; k < n.operands.count; ++k) exact = exact && r(k) == 0;
    if (n.op == code_of<where_op>) return select_radius(i, e);
    const host_array& x = value(n.operands[0]);
    if (!x.floating()) {
      if (!exact) return unknown;
      return value(i).floating() ? rounded(n.type, 0, std::fabs(value(i).reals[e]), 1) : 0;
    }
    if (gspmd::detail::is_compare(n.op)) return exact || std::fabs(real(0) - real(1)) > r(0) + r(1) ? 0 : unknown;
    if (n.op == code_of<cast_op> && !value(i).floating()) {
      if (n.type == dtype::pred) return exact || std::fabs(real(0)) > r(0) ? 0 : unknown;
      return exact || std::trunc(real(0) - r(0)) == std::trunc(real(0) + r(0)) ? 0 : unknown;
    }
    const double result = value(i).reals[e];
    // Equal operands give the same kind of result everywhere: an infinity or NaN.
    if (exact && !std::isfinite(result)) return 0;
    double error = 0;
    if (!exact)
      error = gspmd::detail::is_unary(n.op) ? unary_error(n.op, real(0), r(0)) : binary_error(n.op, real(0), r(0), real(1), r(1));
    const bool is_rounded = gspmd::detail::is_unary(n.op) ? !keeps_bits(n.op, x.type, n.type)
                                                          : !exact || !has_exact_result(n.op, n.type, real(0), real(1));
    return rounded(n.type, error, std::fabs(result), is_rounded ? 8 : 0);
  }
  static bool keeps_bits(const operator_code& op, dtype from, dtype to) {
    if (op == code_of<cast_op>) return from == to || to == dtype::f64;
    return op == code_of<abs_op> || op == code_of<negative_op> || op == code_of<sign_op> || op == code_of<relu_op> ||
           op == code_of<floor_op> || op == code_of<ceil_op>;
  }
  /// Returns true if nothing is rounded, so that even a fused multiply-add gives these bits.
  static bool has_exact_result(const operator_code& op, dtype type, double a, double b) {
    const long double wide_a = a, wide_b = b;
    switch (op.id) {
      case operator_id<add_op>: return wide_a + wide_b == static_cast<long double>(round_to(type, a + b));
      case operator_id<subtract_op>: return wide_a - wide_b == static_cast<long double>(round_to(type, a - b));
      case operator_id<multiply_op>: return wide_a * wide_b == static_cast<long double>(round_to(type, a * b));
      case operator_id<max_op>:
      case operator_id<min_op>: return true;
      case operator_id<divide_op>:
      case operator_id<pow_op>:
      case operator_id<fmod_op>:
      case operator_id<atan2_op>: return false;
      default: refuse(op);
    }
  }
  /// Considers both sides if the predicate is unknown.
  double select_radius(int i, std::size_t e) {
    const node& n = at(i);
    const auto r = [&](int k) { return radius(n.operands[k]).reals[e]; };
    const bool first = value(n.operands[0]).ints[e] != 0;
    if (r(0) == 0) return r(first ? 1 : 2);
    const host_array& a = value(n.operands[1]);
    const host_array& b = value(n.operands[2]);
    const double apart = a.floating() ? std::fabs(a.reals[e] - b.reals[e]) : a.ints[e] == b.ints[e] ? 0 : unknown;
    return std::isnan(apart) ? unknown : apart + std::max(r(1), r(2));
  }
  static double unary_error(const operator_code& op, double x, double r) {
    switch (op.id) {
      case operator_id<abs_op>:
      case operator_id<negative_op>:
      case operator_id<sin_op>:
      case operator_id<cos_op>:
      case operator_id<relu_op>:
      case operator_id<stop_gradient_op>:
      case operator_id<cast_op>: return r;
      // These functions are monotone, so values in between are bounded by the ends. 1 / sqrt(x) is undefined below 0.
      case operator_id<rsqrt_op>:
        if (x <= r) return unknown;
        break;
      case operator_id<sign_op>:
      case operator_id<exp_op>:
      case operator_id<log_op>:
      case operator_id<sqrt_op>:
      case operator_id<tanh_op>:
      case operator_id<sigmoid_op>:
      case operator_id<floor_op>:
      case operator_id<ceil_op>:
      case operator_id<expm1_op>:
      case operator_id<log1p_op>:
      case operator_id<erf_op>:
      case operator_id<erf_inv_op>:
      case operator_id<cbrt_op>: break;
      default: refuse(op);
    }
    const double middle = unary(op, x);
    return std::max(std::fabs(unary(op, x + r) - middle), std::fabs(unary(op, x - r) - middle));
  }
  static double binary_error(const operator_code& op, double a, double ra, double b, double rb) {
    switch (op.id) {
      case operator_id<add_op>:
      case operator_id<subtract_op>: return ra + rb;
      case operator_id<multiply_op>: return std::fabs(a) * rb + std::fabs(b) * ra + ra * rb;
      case operator_id<divide_op>: return std::fabs(b) <= rb ? unknown : (ra + std::fabs(a / b) * rb) / (std::fabs(b) - rb);
      case operator_id<max_op>:
      case operator_id<min_op>: return std::max(ra, rb);
      case operator_id<pow_op>: {
        if (a <= ra) return unknown;
        double most = 0;  // monotone in each argument, so the extreme values are at the corners
        for (const double base : {a - ra, a + ra})
          for (const double exponent : {b - rb, b + rb})
            most = std::max(most, std::fabs(std::pow(base, exponent) - std::pow(a, b)));
        return most;
      }
      case operator_id<fmod_op>:
      case operator_id<atan2_op>: return unknown;
      default: refuse(op);
    }
  }

  // ---- sums and other reductions ----

  void einsum_radius(int i, host_array& r) {
    const node& n = at(i);
    bool quarters = true;
    std::vector<host_array> least, most, ones;
    for (const int o : n.operands) {
      quarters = quarters && are_multiples(o, 4);
      ones.emplace_back(dtype::f64, value(o).shape);
      for (auto& x : ones.back().reals) x = 1;
      least.push_back(magnitudes(o, false));
      most.push_back(magnitudes(o, true));
      if (!value(o).floating())  // 1 and infinity, so that a product with 0 does not hide unknown values
        for (auto& x : most.back().reals) x = x > 0 ? unknown : 1;
    }
    const bool floating = value(i).floating();
    const auto above = on(i, std::move(most));
    const auto below = on(i, std::move(least));
    const auto terms = on(i, std::move(ones));
    for (std::size_t e = 0; e < r.size(); ++e) {
      if (floating)
        r.reals[e] = quarters && above.reals[e] < 0x1p20
                         ? 0
                         : rounded(n.type, above.reals[e] - below.reals[e], above.reals[e], 2 + terms.reals[e]);
      else r.reals[e] = std::isfinite(above.reals[e]) ? 0 : unknown;
    }
  }

  void reduce_radius(int i, host_array& r) {
    node n = at(i);
    const int x = n.operands[0];
    const bool floating = value(i).floating();
    if (!floating || n.reduced_by == monoid::max || n.reduced_by == monoid::min) {
      host_array most(dtype::f64, r.shape);
      n.type = dtype::f64;
      n.reduced_by = monoid::max;
      reduce(n, radius(x), most);
      for (std::size_t e = 0; e < r.size(); ++e) r.reals[e] = std::max(most.reals[e], 0.0);  // nothing to reduce: exact
      return;
    }
    const double terms = static_cast<double>(value(x).size()) / static_cast<double>(std::max<std::size_t>(r.size(), 1));
    if (n.reduced_by == monoid::add) {
      const auto above = on(i, {magnitudes(x, true)});
      const auto below = on(i, {magnitudes(x, false)});
      const bool sixteenths = are_multiples(x, 16);
      for (std::size_t e = 0; e < r.size(); ++e)
        r.reals[e] = sixteenths && above.reals[e] < 0x1p20
                         ? 0
                         : rounded(n.type, above.reals[e] - below.reals[e], above.reals[e], 2 + terms);
      return;
    }
    // A product may leave the range of the type in one order and stay inside in another.
    auto large = magnitudes(x, true);
    auto small = large;
    for (auto& m : large.reals) m = std::max(m, 1.0);
    for (auto& m : small.reals) m = std::min(m, 1.0);
    const auto above = on(i, {magnitudes(x, true)});
    const auto below = on(i, {magnitudes(x, false)});
    large = on(i, {large});
    small = on(i, {small});
    const double range = largest(at(i).type) / 4;
    for (std::size_t e = 0; e < r.size(); ++e) {
      const bool stays = large.reals[e] < range && (small.reals[e] > 1 / range || below.reals[e] == 0);
      r.reals[e] = stays ? rounded(at(i).type, above.reals[e] - below.reals[e], above.reals[e], 2 + terms) : unknown;
    }
  }

  const graph& graph_;
  bool is_known_ = true;
};

/// The number of elements, of elements with a finite radius, and of these the number with a radius above 0.
struct compared_elements {
  std::uint64_t all = 0, compared = 0, inexact = 0;
};

/// Returns the first element of `actual` that neither its expected value nor rounding explains, or -1.
template <class T>
std::int64_t first_unexplained(const T* actual, const host_array& expected, const host_array& radius, compared_elements& count) {
  count.all += expected.size();
  for (std::size_t e = 0; e < expected.size(); ++e) {
    const double r = radius.reals[e];
    if (!std::isfinite(r)) continue;
    ++count.compared;
    count.inexact += r > 0;
    bool same = false;
    if (expected.floating()) {
      const double a = static_cast<double>(actual[e]), b = expected.reals[e];
      same = a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= r;
    } else {
      same = static_cast<std::int64_t>(actual[e]) == expected.ints[e];
    }
    if (!same) return static_cast<std::int64_t>(e);
  }
  return -1;
}

}  // namespace reference
