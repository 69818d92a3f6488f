// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <type_traits>

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/one_call.hpp"
#include "gspmd/detail/ops/sources.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/program.hpp"

namespace gspmd {

/// An operand of an elementwise operator: a tensor of the program, or a number that stands for a tensor of it. Tensors of integers
/// and of bool take only numbers that their type holds exactly: `x + 2.0` is right for int32, `x < 4.5` is refused.
class operand {
 public:
  constexpr operand(value v, location where = location::current()) : at(where), tensor_(v) {}  // NOLINT: implicit on purpose
  template <class Number>
    requires std::is_arithmetic_v<Number>
  constexpr operand(Number n, location where = location::current())  // NOLINT: implicit on purpose
      : at(where), is_number_(true), number_(n) {}
  /// An operand of a function of the user's own that calls an operator; errors name the line of `where`.
  constexpr operand(const operand& other, location where) : operand(other) { at = where; }

  location at;

  [[nodiscard]] constexpr bool is_number() const { return is_number_; }
  [[nodiscard]] constexpr value tensor() const { return tensor_; }
  [[nodiscard]] constexpr const detail::written_number& number() const { return number_; }
  /// Its node, as an operand of `op`.
  [[nodiscard]] constexpr int node_in(detail::graph& g, dtype type, const detail::extents& shape, std::string_view op) const {
    return is_number_ ? detail::add_number(g, number_, type, shape, op, at) : tensor_.id();
  }

 private:
  value tensor_;
  bool is_number_ = false;
  detail::written_number number_ = 0;
};

namespace detail {

/// Stretches operands to one shape: dims are aligned at the right, extents of 1 are repeated. Anything else is left for the
/// operator to refuse.
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

constexpr value elementwise(opcode op, std::initializer_list<operand> operands, location at,
                            const map_function* function = nullptr) {
  graph* g = nullptr;
  dtype type = dtype::f32;
  int k = 0;
  for (const auto& o : operands) {
    if (!o.is_number()) {
      if (!o.tensor().is_valid()) return {};
      g = o.tensor().graph();
      if (!(op == opcode::select && k == 0)) type = o.tensor().type();
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
    const dtype wanted = op == opcode::select && k == 0 ? dtype::pred : type;
    ids[k] = stretch(*g, o.node_in(*g, wanted, shape, name_of(op)), shape, at);
    ++k;
  }
  const int id = add_elementwise(*g, op, detail::span<const int>(ids, static_cast<std::size_t>(k)), at, dtype::f32, function);
  return made(*g, id, result_type(op, type, type), shape);
}

template <opcode Op>
constexpr value unary(value x, location at) {
  return elementwise(Op, {operand(x, at)}, at);
}

}  // namespace detail

// Elementwise operators. Global and local: every element of the result from the same element of the operands, no
// communication when the operands are sharded alike. Operands are tensors of one type, stretched to one shape as NumPy does
// (dims aligned at the right, extents of 1 repeated), or numbers. Meanings are StableHLO's.

constexpr value abs(value x, location at = location::current()) { return detail::unary<detail::opcode::abs>(x, at); }
constexpr value negate(value x, location at = location::current()) { return detail::unary<detail::opcode::negate>(x, at); }
constexpr value sign(value x, location at = location::current()) { return detail::unary<detail::opcode::sign>(x, at); }
constexpr value exponential(value x, location at = location::current()) {
  return detail::unary<detail::opcode::exponential>(x, at);
}
constexpr value log(value x, location at = location::current()) { return detail::unary<detail::opcode::log>(x, at); }
constexpr value sqrt(value x, location at = location::current()) { return detail::unary<detail::opcode::sqrt>(x, at); }
constexpr value rsqrt(value x, location at = location::current()) { return detail::unary<detail::opcode::rsqrt>(x, at); }
constexpr value tanh(value x, location at = location::current()) { return detail::unary<detail::opcode::tanh>(x, at); }
constexpr value logistic(value x, location at = location::current()) { return detail::unary<detail::opcode::logistic>(x, at); }
constexpr value relu(value x, location at = location::current()) { return detail::unary<detail::opcode::relu>(x, at); }
constexpr value sine(value x, location at = location::current()) { return detail::unary<detail::opcode::sine>(x, at); }
constexpr value cosine(value x, location at = location::current()) { return detail::unary<detail::opcode::cosine>(x, at); }
constexpr value floor(value x, location at = location::current()) { return detail::unary<detail::opcode::floor>(x, at); }
constexpr value ceil(value x, location at = location::current()) { return detail::unary<detail::opcode::ceil>(x, at); }
/// e^x - 1 and log(1 + x), with all digits of results near 0.
constexpr value expm1(value x, location at = location::current()) { return detail::unary<detail::opcode::expm1>(x, at); }
constexpr value log1p(value x, location at = location::current()) { return detail::unary<detail::opcode::log1p>(x, at); }
constexpr value erf(value x, location at = location::current()) { return detail::unary<detail::opcode::erf>(x, at); }
/// The number whose error function is x: infinite of 1 and -1.
constexpr value erf_inv(value x, location at = location::current()) { return detail::unary<detail::opcode::erf_inv>(x, at); }
constexpr value cbrt(value x, location at = location::current()) { return detail::unary<detail::opcode::cbrt>(x, at); }
/// `x`, through which no gradient passes.
constexpr value stop_gradient(value x, location at = location::current()) {
  return detail::unary<detail::opcode::stop_gradient>(x, at);
}
constexpr value logical_not(value x, location at = location::current()) { return detail::unary<detail::opcode::not_>(x, at); }

constexpr value operator-(operand x) { return detail::elementwise(detail::opcode::negate, {x}, x.at); }
constexpr value operator+(operand a, operand b) { return detail::elementwise(detail::opcode::add, {a, b}, a.at); }
constexpr value operator-(operand a, operand b) { return detail::elementwise(detail::opcode::subtract, {a, b}, a.at); }
constexpr value operator*(operand a, operand b) { return detail::elementwise(detail::opcode::multiply, {a, b}, a.at); }
constexpr value operator/(operand a, operand b) { return detail::elementwise(detail::opcode::divide, {a, b}, a.at); }
constexpr value maximum(operand a, operand b) { return detail::elementwise(detail::opcode::maximum, {a, b}, a.at); }
constexpr value minimum(operand a, operand b) { return detail::elementwise(detail::opcode::minimum, {a, b}, a.at); }
constexpr value power(operand a, operand b) { return detail::elementwise(detail::opcode::power, {a, b}, a.at); }
/// Returns the remainder of a divided by b, with the sign of a. Of integers, x % 0 is x. (x / 0 has all bits set: -1 of signed ones.)
constexpr value remainder(operand a, operand b) { return detail::elementwise(detail::opcode::remainder, {a, b}, a.at); }
constexpr value operator%(operand a, operand b) { return remainder(a, b); }
/// The angle of the point (x, y), from -pi to pi.
constexpr value atan2(operand y, operand x) { return detail::elementwise(detail::opcode::atan2, {y, x}, y.at); }
/// The bits of integers moved by so many places; what moves out is lost. By as many places as the type has bits, or more, or a negative
/// number of them, all are lost. To the right a signed integer keeps its sign.
constexpr value shift_left(operand a, operand b) { return detail::elementwise(detail::opcode::shift_left, {a, b}, a.at); }
constexpr value shift_right(operand a, operand b) { return detail::elementwise(detail::opcode::shift_right, {a, b}, a.at); }
/// The bits of integers one by one, and the logic of bools: so are logical_and, logical_or and logical_not.
constexpr value bitwise_xor(operand a, operand b) { return detail::elementwise(detail::opcode::xor_, {a, b}, a.at); }
constexpr value logical_and(operand a, operand b) { return detail::elementwise(detail::opcode::and_, {a, b}, a.at); }
constexpr value logical_or(operand a, operand b) { return detail::elementwise(detail::opcode::or_, {a, b}, a.at); }

/// Comparisons give a tensor of bool.
constexpr value operator<(operand a, operand b) { return detail::elementwise(detail::opcode::compare_lt, {a, b}, a.at); }
constexpr value operator<=(operand a, operand b) { return detail::elementwise(detail::opcode::compare_le, {a, b}, a.at); }
constexpr value operator>(operand a, operand b) { return detail::elementwise(detail::opcode::compare_gt, {a, b}, a.at); }
constexpr value operator>=(operand a, operand b) { return detail::elementwise(detail::opcode::compare_ge, {a, b}, a.at); }
constexpr value equal(operand a, operand b) { return detail::elementwise(detail::opcode::compare_eq, {a, b}, a.at); }
constexpr value not_equal(operand a, operand b) { return detail::elementwise(detail::opcode::compare_ne, {a, b}, a.at); }

/// `on_true` where `condition` (bool) holds, else `on_false`.
constexpr value select(operand condition, operand on_true, operand on_false) {
  return detail::elementwise(detail::opcode::select, {condition, on_true, on_false}, condition.at);
}

/// `x`, but at least `low` and at most `high`. Where it is equal to one of them, half of the gradient passes.
///
///     auto y = clamp(0.0, x, 6.0);
constexpr value clamp(operand low, operand x, operand high) {
  const auto node = [](const operand& o) { return o.is_number() ? -1 : o.tensor().id(); };
  const detail::one_call call(x.tensor().graph(), "clamp", {node(low), node(x), node(high)});
  return minimum(operand(maximum(operand(low, x.at), x), x.at), high);
}

/// Whether a float is neither infinite nor NaN.
constexpr value is_finite(value x, location at = location::current()) {
  return operand(abs(x, at), at) < operand(std::numeric_limits<double>::infinity(), at);
}

/// `x += y` is `x = x + y`, and so on.
constexpr value& operator+=(value& a, operand b) { return a = operand(a, b.at) + b; }
constexpr value& operator-=(value& a, operand b) { return a = operand(a, b.at) - b; }
constexpr value& operator*=(value& a, operand b) { return a = operand(a, b.at) * b; }
constexpr value& operator/=(value& a, operand b) { return a = operand(a, b.at) / b; }

/// The parts of complex numbers, as float of c64 and double of c128; abs(z) is their absolute value. Linear: of a partial tensor they are
/// partial. Errors: a tensor that is not complex.
constexpr value real(value z, location at = location::current()) { return detail::unary<detail::opcode::real>(z, at); }
constexpr value imag(value z, location at = location::current()) { return detail::unary<detail::opcode::imag>(z, at); }
/// The complex conjugates.
constexpr value conj(value z, location at = location::current()) { return detail::unary<detail::opcode::conj>(z, at); }
/// Complex numbers of two tensors of float (c64) or double (c128), or of a tensor and a number.
///
///     complex(cosine(phi), sine(phi))
constexpr value complex(operand real, operand imag) {
  return detail::elementwise(detail::opcode::complex, {real, imag}, real.at);
}

namespace detail {

/// Returns `x` as elements of `type`; `x` itself if it has them.
constexpr value converted(value x, dtype type, location at) {
  if (!x.is_valid() || x.type() == type) return x;
  const int id = x.id();
  return made(*x.graph(), add_elementwise(*x.graph(), opcode::convert, span<const int>(&id, 1), at, type), type, x.shape());
}

}  // namespace detail

/// Converts the elements to another type. Floats to integers saturate, and NaN becomes 0. Real numbers become complex ones. Complex numbers
/// do not become real: use real(z), imag(z) or abs(z).
template <class T = void>
constexpr value convert(value x, location at = location::current()) {
  if constexpr (std::is_void_v<T>) {
    static_assert(detail::written_so<T>, "gspmd: convert: name the element type: convert<float>(x)");
    x.note_refused();
    return x;
  } else {
    if (!x.is_valid()) return {};
    const int id = x.id();
    auto& g = *x.graph();
    return detail::made(
        g, detail::add_elementwise(g, detail::opcode::convert, detail::span<const int>(&id, 1), at, detail::dtype_of<T>()),
        detail::dtype_of<T>(), x.shape());
  }
}

}  // namespace gspmd
