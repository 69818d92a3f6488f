// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <type_traits>

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/elementwise_gradients.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/program/program.hpp"

namespace gspmd {

/// An operand of an elementwise operator: a tensor of the program, or a number, which is used for all elements.
///
/// **Errors.** Compile error if a tensor of integers or bool meets a number that its type cannot represent exactly. For int32, `x + 2.0` is
/// right, and `x < 4.5` is refused.
class operand {
 public:
  constexpr operand(value v, location where = location::current()) : at(where), tensor_(v) {}  // NOLINT: implicit on purpose
  template <class Number>
    requires std::is_arithmetic_v<Number>
  constexpr operand(Number n, location where = location::current())  // NOLINT: implicit on purpose
      : at(where), is_number_(true), number_(n) {}
  /// An operand for a user's function that calls an operator. Errors name the line of `where`.
  constexpr operand(const operand& other, location where) : operand(other) { at = where; }

  location at;

  [[nodiscard]] constexpr bool is_number() const { return is_number_; }
  [[nodiscard]] constexpr value tensor() const { return tensor_; }
  [[nodiscard]] constexpr const detail::written_number& number() const { return number_; }
  /// Returns its node, as an operand of `op`.
  [[nodiscard]] constexpr int node_in(detail::graph& g, dtype type, const detail::extents& shape, std::string_view op) const {
    return is_number_ ? detail::add_number(g, number_, type, shape, op, at) : tensor_.id();
  }

 private:
  value tensor_;
  bool is_number_ = false;
  detail::written_number number_ = 0;
};

namespace detail {

/// Returns the shape to which the operands are broadcast: dims are aligned at the right, and extents of 1 are repeated.
/// If the shapes do not match, the operator refuses them.
constexpr extents common_shape(std::initializer_list<operand> operands) {
  extents shape;
  for (const auto& o : operands) {
    if (o.is_number()) continue;
    const extents other = o.tensor().shape();
    while (shape.count < other.count) shape.insert(0, 1);
    for (int d = 0; d < other.count; ++d) {
      auto& e = shape[shape.count - other.count + d];
      if (e == 1) e = other[d];
    }
  }
  return shape;
}

constexpr int stretch(graph& g, int id, const extents& shape, location at) {
  if (id < 0) return -1;
  const extents own = g.nodes[static_cast<std::size_t>(id)].shape;
  if (own == shape || own.count > shape.count) return id;
  inline_vec<std::int8_t, max_rank> dims;
  for (int d = 0; d < own.count; ++d) {
    const int to = shape.count - own.count + d;
    if (own[d] != 1 && own[d] != shape[to]) return id;
    dims.push_back(static_cast<std::int8_t>(to));
  }
  return add_broadcast(g, id, shape, dims, at);
}

constexpr value elementwise(const operator_code& op, std::initializer_list<operand> operands, location at,
                            const map_function* function = nullptr) {
  graph* g = nullptr;
  dtype type = dtype::f32;
  int k = 0;
  for (const auto& o : operands) {
    if (!o.is_number()) {
      if (!o.tensor().is_valid()) return {};
      g = o.tensor().graph();
      if (!(op.loop().has_condition && k == 0)) type = o.tensor().type();
    }
    ++k;
  }
  if (g == nullptr) return {};
  const extents shape = common_shape(operands);
  int ids[max_map_arity]{};
  k = 0;
  for (const auto& o : operands) ids[k++] = o.is_number() ? -1 : o.tensor().id();
  const detail::span<const int> arguments(ids, static_cast<std::size_t>(k));
  if (!g->may_read(arguments, at, name_of(op))) return made(*g, -1, result_type(op, type, type), shape);
  const one_call call(g, name_of(op), arguments);
  k = 0;
  for (const auto& o : operands) {
    const dtype wanted = op.loop().has_condition && k == 0 ? dtype::pred : type;
    ids[k] = stretch(*g, o.node_in(*g, wanted, shape, name_of(op)), shape, at);
    ++k;
  }
  const int id = add_elementwise(*g, op, detail::span<const int>(ids, static_cast<std::size_t>(k)), at, dtype::f32, function);
  return made(*g, id, result_type(op, type, type), shape);
}

template <class O>
constexpr value unary(value x, location at) {
  return elementwise(code_of<O>, {operand(x, at)}, at);
}

}  // namespace detail

// Elementwise operators. In the global and the local view, each element of the result is computed from the same element
// of the operands. If the operands have the same sharding, nothing is sent. Operands are numbers, or tensors of one
// type that are broadcast to one shape as in NumPy (dims aligned at the right, extents of 1 repeated). The operators
// have StableHLO's semantics.

/// Returns the absolute values. If `x` is complex, the result is real.
constexpr value abs(value x, location at = location::current()) { return detail::unary<detail::abs_op>(x, at); }
/// Returns -x.
constexpr value negative(value x, location at = location::current()) { return detail::unary<detail::negative_op>(x, at); }
/// Returns -1, 0 or 1, the sign of each element.
constexpr value sign(value x, location at = location::current()) { return detail::unary<detail::sign_op>(x, at); }
/// Returns e^x.
constexpr value exp(value x, location at = location::current()) { return detail::unary<detail::exp_op>(x, at); }
/// Returns the natural logarithm.
constexpr value log(value x, location at = location::current()) { return detail::unary<detail::log_op>(x, at); }
/// Returns the square root.
constexpr value sqrt(value x, location at = location::current()) { return detail::unary<detail::sqrt_op>(x, at); }
/// Returns 1 / sqrt(x).
constexpr value rsqrt(value x, location at = location::current()) { return detail::unary<detail::rsqrt_op>(x, at); }
/// Returns the hyperbolic tangent.
constexpr value tanh(value x, location at = location::current()) { return detail::unary<detail::tanh_op>(x, at); }
/// Returns 1 / (1 + e^-x), the sigmoid function.
constexpr value sigmoid(value x, location at = location::current()) { return detail::unary<detail::sigmoid_op>(x, at); }
/// Returns max(x, 0).
constexpr value relu(value x, location at = location::current()) { return detail::unary<detail::relu_op>(x, at); }
/// Returns the sine; `x` is in radians.
constexpr value sin(value x, location at = location::current()) { return detail::unary<detail::sin_op>(x, at); }
/// Returns the cosine; `x` is in radians.
constexpr value cos(value x, location at = location::current()) { return detail::unary<detail::cos_op>(x, at); }
/// Returns the largest integer that is not above `x`.
constexpr value floor(value x, location at = location::current()) { return detail::unary<detail::floor_op>(x, at); }
/// Returns the smallest integer that is not below `x`.
constexpr value ceil(value x, location at = location::current()) { return detail::unary<detail::ceil_op>(x, at); }
/// Returns e^x - 1, with full precision for results near 0.
constexpr value expm1(value x, location at = location::current()) { return detail::unary<detail::expm1_op>(x, at); }
/// Returns log(1 + x), with full precision for results near 0.
constexpr value log1p(value x, location at = location::current()) { return detail::unary<detail::log1p_op>(x, at); }
/// Returns the error function.
constexpr value erf(value x, location at = location::current()) { return detail::unary<detail::erf_op>(x, at); }
/// Returns the number whose error function is x. For 1 and -1, it is infinite.
constexpr value erf_inv(value x, location at = location::current()) { return detail::unary<detail::erf_inv_op>(x, at); }
/// Returns the cube root.
constexpr value cbrt(value x, location at = location::current()) { return detail::unary<detail::cbrt_op>(x, at); }
/// Returns `x` and stops the gradient.
constexpr value stop_gradient(value x, location at = location::current()) {
  return detail::unary<detail::stop_gradient_op>(x, at);
}
/// Inverts bools, or each bit of integers.
constexpr value bitwise_not(value x, location at = location::current()) { return detail::unary<detail::not_op>(x, at); }

/// Returns the negated elements.
constexpr value operator-(operand x) { return detail::elementwise(detail::code_of<detail::negative_op>, {x}, x.at); }
/// Returns the sum of each pair of elements.
constexpr value operator+(operand a, operand b) { return detail::elementwise(detail::code_of<detail::add_op>, {a, b}, a.at); }
/// Returns the difference of each pair of elements.
constexpr value operator-(operand a, operand b) {
  return detail::elementwise(detail::code_of<detail::subtract_op>, {a, b}, a.at);
}
/// Returns the product of each pair of elements. For products of matrices, use `einsum`.
constexpr value operator*(operand a, operand b) {
  return detail::elementwise(detail::code_of<detail::multiply_op>, {a, b}, a.at);
}
/// Returns the quotient of each pair of elements. For integers, it is rounded towards 0.
constexpr value operator/(operand a, operand b) { return detail::elementwise(detail::code_of<detail::divide_op>, {a, b}, a.at); }
/// Returns the larger element of each pair.
constexpr value max(operand a, operand b) { return detail::elementwise(detail::code_of<detail::max_op>, {a, b}, a.at); }
/// Returns the smaller element of each pair.
constexpr value min(operand a, operand b) { return detail::elementwise(detail::code_of<detail::min_op>, {a, b}, a.at); }
/// Returns a^b.
constexpr value pow(operand a, operand b) { return detail::elementwise(detail::code_of<detail::pow_op>, {a, b}, a.at); }
// std has functions of these names too. If both namespaces are used, these overloads are better matches.
constexpr value max(value a, value b, location at = location::current()) { return max(operand(a, at), operand(b, at)); }
constexpr value min(value a, value b, location at = location::current()) { return min(operand(a, at), operand(b, at)); }
constexpr value pow(value a, value b, location at = location::current()) { return pow(operand(a, at), operand(b, at)); }
template <class Number>
  requires std::is_arithmetic_v<Number>
constexpr value max(value a, Number b, location at = location::current()) {
  return max(operand(a, at), operand(b, at));
}
template <class Number>
  requires std::is_arithmetic_v<Number>
constexpr value max(Number a, value b, location at = location::current()) {
  return max(operand(a, at), operand(b, at));
}
template <class Number>
  requires std::is_arithmetic_v<Number>
constexpr value min(value a, Number b, location at = location::current()) {
  return min(operand(a, at), operand(b, at));
}
template <class Number>
  requires std::is_arithmetic_v<Number>
constexpr value min(Number a, value b, location at = location::current()) {
  return min(operand(a, at), operand(b, at));
}
template <class Number>
  requires std::is_arithmetic_v<Number>
constexpr value pow(value a, Number b, location at = location::current()) {
  return pow(operand(a, at), operand(b, at));
}
template <class Number>
  requires std::is_arithmetic_v<Number>
constexpr value pow(Number a, value b, location at = location::current()) {
  return pow(operand(a, at), operand(b, at));
}
/// Returns the remainder of a divided by b, with the sign of a. For integers, x % 0 is x, and x / 0 has all bits set
/// (-1 if signed).
constexpr value fmod(operand a, operand b) { return detail::elementwise(detail::code_of<detail::fmod_op>, {a, b}, a.at); }
/// Returns fmod(a, b).
constexpr value operator%(operand a, operand b) { return fmod(a, b); }
/// Returns the angle of the point (x, y), from -pi to pi.
constexpr value atan2(operand y, operand x) { return detail::elementwise(detail::code_of<detail::atan2_op>, {y, x}, y.at); }
/// Returns the bits of the integer a, shifted left by b places. If b is negative, or not below the number of bits of
/// the type, all bits are shifted out.
constexpr value left_shift(operand a, operand b) {
  return detail::elementwise(detail::code_of<detail::left_shift_op>, {a, b}, a.at);
}
/// Returns the bits of the integer a, shifted right by b places; see shift_left. A signed integer keeps its sign.
constexpr value right_shift(operand a, operand b) {
  return detail::elementwise(detail::code_of<detail::right_shift_op>, {a, b}, a.at);
}
/// Returns the exclusive or of bools, or of each bit of integers.
constexpr value bitwise_xor(operand a, operand b) { return detail::elementwise(detail::code_of<detail::xor_op>, {a, b}, a.at); }
/// Returns `a and b` of bools, or of each bit of integers.
constexpr value bitwise_and(operand a, operand b) { return detail::elementwise(detail::code_of<detail::and_op>, {a, b}, a.at); }
/// Returns `a or b` of bools, or of each bit of integers.
constexpr value bitwise_or(operand a, operand b) { return detail::elementwise(detail::code_of<detail::or_op>, {a, b}, a.at); }

/// Returns true for pairs with a < b. All comparisons return a tensor of bool.
constexpr value operator<(operand a, operand b) {
  return detail::elementwise(detail::code_of<detail::compare_lt_op>, {a, b}, a.at);
}
/// Returns true for pairs with a <= b.
constexpr value operator<=(operand a, operand b) {
  return detail::elementwise(detail::code_of<detail::compare_le_op>, {a, b}, a.at);
}
/// Returns true for pairs with a > b.
constexpr value operator>(operand a, operand b) {
  return detail::elementwise(detail::code_of<detail::compare_gt_op>, {a, b}, a.at);
}
/// Returns true for pairs with a >= b.
constexpr value operator>=(operand a, operand b) {
  return detail::elementwise(detail::code_of<detail::compare_ge_op>, {a, b}, a.at);
}
/// Returns true for pairs with equal elements. A value has no `==`.
constexpr value equal(operand a, operand b) { return detail::elementwise(detail::code_of<detail::compare_eq_op>, {a, b}, a.at); }
/// Returns true for pairs with different elements.
constexpr value not_equal(operand a, operand b) {
  return detail::elementwise(detail::code_of<detail::compare_ne_op>, {a, b}, a.at);
}

/// Returns `on_true` for elements with a true `condition` (bool), and otherwise `on_false`.
constexpr value where(operand condition, operand on_true, operand on_false) {
  return detail::elementwise(detail::code_of<detail::where_op>, {condition, on_true, on_false}, condition.at);
}

/// Returns `x`, limited to at least `low` and at most `high`. If x is equal to a limit, x gets half of the gradient.
///
/// **Example.**
///
///     auto y = clip(x, 0.0, 6.0);
constexpr value clip(operand x, operand low, operand high) {
  const auto node = [](const operand& o) { return o.is_number() ? -1 : o.tensor().id(); };
  const detail::one_call call(x.tensor().graph(), "clip", {node(low), node(x), node(high)});
  return min(operand(max(operand(low, x.at), x), x.at), high);
}

/// Returns true for floats that are neither infinite nor NaN.
constexpr value isfinite(value x, location at = location::current()) {
  return operand(abs(x, at), at) < operand(std::numeric_limits<double>::infinity(), at);
}

/// Replaces `a` by a + b.
constexpr value& operator+=(value& a, operand b) { return a = operand(a, b.at) + b; }
/// Replaces `a` by a - b.
constexpr value& operator-=(value& a, operand b) { return a = operand(a, b.at) - b; }
/// Replaces `a` by a * b.
constexpr value& operator*=(value& a, operand b) { return a = operand(a, b.at) * b; }
/// Replaces `a` by a / b.
constexpr value& operator/=(value& a, operand b) { return a = operand(a, b.at) / b; }

/// Returns the real parts of complex numbers: float for c64, double for c128. abs(z) is their absolute value. The parts
/// of a partial tensor are partial.
///
/// **Errors.** A tensor that is not complex.
constexpr value real(value z, location at = location::current()) { return detail::unary<detail::real_op>(z, at); }
/// Returns the imaginary parts of complex numbers; see real.
constexpr value imag(value z, location at = location::current()) { return detail::unary<detail::imag_op>(z, at); }
/// Returns the complex conjugates.
constexpr value conj(value z, location at = location::current()) { return detail::unary<detail::conj_op>(z, at); }
/// Returns complex numbers from two tensors of float (c64) or double (c128), or from a tensor and a number.
///
/// **Example.**
///
///     complex(cos(phi), sin(phi))
constexpr value complex(operand real, operand imag) {
  return detail::elementwise(detail::code_of<detail::complex_op>, {real, imag}, real.at);
}

namespace detail {

/// Returns `x` converted to `type`, or `x` itself if it has this type.
constexpr value converted(value x, dtype type, location at) {
  if (!x.is_valid() || x.type() == type) return x;
  const int id = x.id();
  return made(*x.graph(), add_elementwise(*x.graph(), code_of<cast_op>, span<const int>(&id, 1), at, type), type, x.shape());
}

}  // namespace detail

/// Converts the elements to another type. Conversions of floats to integers saturate, and NaN becomes 0. Real numbers
/// can become complex. For complex numbers, use real(z), imag(z) or abs(z).
template <class T = void>
constexpr value cast(value x, location at = location::current()) {
  if constexpr (std::is_void_v<T>) {
    static_assert(detail::written_so<T>, "gspmd: cast: name the element type: cast<float>(x)");
    x.note_refused();
    return x;
  } else {
    if (!x.is_valid()) return {};
    const int id = x.id();
    auto& g = *x.graph();
    return detail::made(
        g,
        detail::add_elementwise(g, detail::code_of<detail::cast_op>, detail::span<const int>(&id, 1), at, detail::dtype_of<T>()),
        detail::dtype_of<T>(), x.shape());
  }
}

}  // namespace gspmd
