// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/rule.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"

namespace gspmd::detail {

constexpr node source(operator_code op, dtype type, const extents& shape, location at) {
  node n;
  n.op = op;
  n.type = type;
  n.shape = shape;
  n.at = at;
  return n;
}

/// Adds an input of the program. A rejected input gets extents of 1, so that the callers have a node to continue with.
constexpr int add_parameter(graph& g, dtype type, const extents& shape, location at) {
  node n = source(opcode::parameter, type, shape, at);
  if (!g.is_countable(n, "input"))
    for (auto& e : n.shape) e = 1;
  const int id = g.add(n);
  g.inputs.push_back(id);
  return id;
}

/// A number that a user writes, before the type of its tensor is known. Integer and bool types accept only numbers that
/// they represent exactly. Floating types round the number, as C++ does.
struct written_number {
  double real = 0;
  std::int64_t integer = 0;
  bool is_integer = false;  // the number is `integer`
  bool is_natural = false;  // the number is `integer` as a std::uint64_t, above the largest int64

  template <class Number>
    requires std::is_arithmetic_v<Number>
  constexpr written_number(Number n) : real(static_cast<double>(n)) {  // NOLINT: implicit on purpose
    if constexpr (std::is_floating_point_v<Number>) {
      is_integer = n >= static_cast<Number>(-0x1p63) && n < static_cast<Number>(0x1p63) &&
                   static_cast<Number>(static_cast<std::int64_t>(n)) == n;
      is_natural = n >= static_cast<Number>(0x1p63) && n < static_cast<Number>(0x1p64);  // floats of this size have no fraction
      if (is_natural) integer = static_cast<std::int64_t>(static_cast<std::uint64_t>(n));
    } else {
      constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      is_integer = std::is_signed_v<Number> || static_cast<std::uint64_t>(n) <= most;
      is_natural = !is_integer;
      integer = static_cast<std::int64_t>(n);
    }
    if (is_integer) integer = static_cast<std::int64_t>(n);
  }

  [[nodiscard]] constexpr bool is_one_of(dtype type) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    if (is_own(type)) return is_integer && integer == 0;
    double beyond = infinity;  // from this number on, infinity is nearer
    if (type == dtype::f32 || type == dtype::c64) beyond = 0x1.ffffffp127;
    if (type == dtype::bf16) beyond = 0x1.ffp127;
    if (type == dtype::f16) beyond = 65520;
    if (is_floating(type)) return !(real >= beyond && real < infinity) && !(real <= -beyond && real > -infinity);
    if (type == dtype::pred) return is_integer && (integer == 0 || integer == 1);
    return (is_integer && integer >= facts_of(type).least && integer <= facts_of(type).most) ||
           (is_natural && type == dtype::u64);
  }
  /// Returns true if a movement can use the number as fill value. Fill values are stored in 64 bits, so one for c128
  /// must be exact in c64.
  [[nodiscard]] constexpr bool fills(dtype type) const {
    return is_one_of(type) && (type != dtype::c128 || !(real == real) || static_cast<double>(static_cast<float>(real)) == real);
  }
};

/// Returns the number after a space: ` 4.5`, ` -0.333333...`, ` 2.5e300`, ` -inf`.
[[gnu::cold]] constexpr text number_text(const written_number& n) {
  text t;
  if (n.is_integer) return t << ' ' << n.integer;
  const auto natural = static_cast<std::uint64_t>(n.integer);
  if (n.is_natural) return t << ' ' << static_cast<std::int64_t>(natural / 10) << static_cast<int>(natural % 10);
  if (!(n.real == n.real)) return t << " nan";
  t << (n.real < 0 ? " -" : " ");
  double rest = n.real < 0 ? -n.real : n.real;
  if (rest > std::numeric_limits<double>::max()) return t << "inf";
  if (rest >= 1e15) {
    int exponent = 0;
    for (; rest >= 10; rest /= 10) ++exponent;
    auto tenths = static_cast<int>(rest * 10 + 0.5);
    if (tenths == 100) tenths = 10, ++exponent;
    return t << tenths / 10 << '.' << tenths % 10 << 'e' << exponent;
  }
  const auto whole = static_cast<std::int64_t>(rest);
  t << whole << '.';
  rest -= static_cast<double>(whole);
  for (int digit = 0; digit < 6 && rest > 0; ++digit) {
    rest *= 10;
    const auto next = static_cast<int>(rest);
    t << next;
    rest -= next;
  }
  return t << (rest > 0 ? "..." : "");
}

/// Returns the error text for a number that the tensor's element type cannot represent.
[[gnu::cold]] constexpr text number_problem(const written_number& n, dtype type) {
  if (n.is_one_of(type))
    return text("the number") << number_text(n) << " is no float, as it must be to fill " << name_of(type)
                              << "; write it for real(x) and imag(x)";
  if (is_own(type))
    return text("the number") << number_text(n) << " is no value of " << name_of(type) << ", which has no number but 0; "
                              << "use a tensor of that type, or map a function that contains the number";
  const dtype wider = type == dtype::bf16 || type == dtype::f16 ? dtype::f32
                      : type == dtype::f32                      ? dtype::f64
                      : n.is_integer                            ? dtype::s64
                      : n.is_natural                            ? dtype::u64
                      : type == dtype::s64                      ? dtype::f64
                                                                : dtype::f32;
  return text("the number") << number_text(n) << (is_floating(type) ? " is too large for " : " is no value of ") << name_of(type)
                            << "; write cast<" << cpp_name_of(wider) << ">(x) for the tensor, or a number that it holds";
}

/// Returns true if all elements are known to be 0.
constexpr bool is_zero(const node& n) { return n.op == opcode::constant && n.real == 0 && n.integer == 0; }

/// Adds a tensor with one number in all elements.
constexpr int add_constant(graph& g, dtype type, const extents& shape, double real, std::int64_t integer, location at) {
  node n = source(opcode::constant, type, shape, at);
  n.real = real;
  n.integer = integer;
  return g.add_sized(n);
}

/// Adds a tensor of a number that a user wrote as an operand of `op`. Fails if the type cannot represent the number.
constexpr int add_number(graph& g, const written_number& n, dtype type, const extents& shape, std::string_view op, location at) {
  if (!n.is_one_of(type)) return g.fail(at, op, mistake::number, number_problem(n, type));
  return add_constant(g, type, shape, n.real, n.integer, at);
}

/// Adds a tensor whose elements are their global index along `dim` (GSPMD, Table 9).
constexpr int add_iota(graph& g, dtype type, const extents& shape, int dim, location at) {
  if (dim < 0 || dim >= shape.count)
    return g.fail(at, "iota", mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(shape) << "; dims count from 0");
  if (type == dtype::pred || is_own(type))
    return g.fail(at, "iota", mistake::type, text("is not defined for ") << name_of(type) << "; use a number type");
  if (facts_of(type).is_integer && shape[dim] - 1 > facts_of(type).most)
    return g.fail(
        at, "iota", mistake::type,
        text(name_of(type)) << " does not hold the indices of dim " << dim << " of " << shape_text(shape) << "; use s64");
  node n = source(opcode::iota, type, shape, at);
  n.attributes.push_back(dim);
  return g.add_sized(n);
}

}  // namespace gspmd::detail
