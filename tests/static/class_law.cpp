// SPDX-License-Identifier: Apache-2.0
// What an operator says of partial operands (`meets`) holds for small numbers: a class that they refute does not compile.
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "gspmd/detail/ops/registry.hpp"

namespace gspmd::detail {
namespace {

struct answer {
  bool is_known = false;
  double is = 0;
};
constexpr answer applied(opcode op, const double* x) {
  const double a = x[0], b = x[1], c = x[2];
  switch (op) {
    case opcode::negate: return {true, -a};
    case opcode::stop_gradient:
    case opcode::real:
    case opcode::conj:
    case opcode::convert: return {true, a};
    case opcode::imag: return {true, 0};
    case opcode::complex: return {true, a + 100 * b};
    case opcode::abs: return {true, a < 0 ? -a : a};
    case opcode::relu: return {true, a > 0 ? a : 0};
    case opcode::sign: return {true, a > 0 ? 1.0 : a < 0 ? -1.0 : 0.0};
    case opcode::floor: return {true, static_cast<double>(floor_div(static_cast<std::int64_t>(2 * a), 2))};
    case opcode::ceil: return {true, -static_cast<double>(floor_div(-static_cast<std::int64_t>(2 * a), 2))};
    case opcode::add: return {true, a + b};
    case opcode::subtract: return {true, a - b};
    case opcode::multiply: return {true, a * b};
    case opcode::divide: return {true, a / (b == 0 ? 1 : b)};
    case opcode::maximum: return {true, a < b ? b : a};
    case opcode::minimum: return {true, a < b ? a : b};
    case opcode::and_: return {true, static_cast<double>(static_cast<int>(a) & static_cast<int>(b))};
    case opcode::or_: return {true, static_cast<double>(static_cast<int>(a) | static_cast<int>(b))};
    case opcode::xor_: return {true, static_cast<double>(static_cast<int>(a) ^ static_cast<int>(b))};
    case opcode::compare_eq: return {true, a == b ? 1.0 : 0.0};
    case opcode::compare_lt: return {true, a < b ? 1.0 : 0.0};
    case opcode::select: return {true, a > 0 ? b : c};
    default: return {};
  }
}
constexpr double joined(monoid kind, double a, double b) {
  switch (kind) {
    case monoid::add: return a + b;
    case monoid::multiply: return a * b;
    case monoid::maximum: return a < b ? b : a;
    case monoid::minimum: return a < b ? a : b;
    case monoid::and_: return static_cast<double>(static_cast<int>(a) & static_cast<int>(b));
    default: return static_cast<double>(static_cast<int>(a) | static_cast<int>(b));
  }
}
constexpr int operands_of(opcode op) { return op == opcode::select ? 3 : op >= opcode::add ? 2 : 1; }
/// What cannot be computed here and grows with its operand.
constexpr bool grows(opcode op) {
  return op == opcode::exponential || op == opcode::expm1 || op == opcode::tanh || op == opcode::logistic || op == opcode::erf ||
         op == opcode::cbrt;
}

/// Whether f of the terms of some operands, joined, is f of what they stand for. `partial`: these operands, by bit.
constexpr bool holds(opcode op, const operator_class& c, monoid kind, unsigned partial, bool others_are_positive) {
  constexpr double numbers[] = {-2, 1, 0.5};
  const bool is_whole = kind == monoid::and_ || kind == monoid::or_;
  const int operands = operands_of(op);
  monoid of_result = kind;
  if (c.turns_order) of_result = kind == monoid::maximum ? monoid::minimum : monoid::maximum;
  int combinations = 1;
  for (int k = 0; k < 2 * operands; ++k) combinations *= 3;
  for (int n = 0; n < combinations; ++n) {
    double first[3] = {}, second[3] = {}, both[3] = {};
    bool is_asked = true;
    for (int k = 0, rest = n; k < operands; ++k) {
      const auto number = [&] {
        const int which = rest % 3;
        rest /= 3;
        return is_whole ? which + 1.0 : numbers[which];
      };
      first[k] = number();
      second[k] = number();
      if ((partial >> k & 1U) != 0) {
        both[k] = joined(kind, first[k], second[k]);
      } else {
        both[k] = second[k] = first[k];
        is_asked = is_asked && (!others_are_positive || first[k] > 0);
      }
    }
    if (is_asked && applied(op, both).is != joined(of_result, applied(op, first).is, applied(op, second).is)) return false;
  }
  return true;
}
constexpr bool is_sound(opcode op, dtype type, monoid kind, const operator_class& c) {
  const unsigned all = ((1U << operands_of(op)) - 1) & ~c.selectors;
  const bool is_known = applied(op, std::array{1.0, 1.0, 1.0}.data()).is_known;
  if (c.takes == partial_class::none || c.takes == partial_class::affine) return true;
  if (!is_known)
    return grows(op) && is_floating(type) && c.takes == partial_class::all && !c.turns_order &&
           (kind == monoid::maximum || kind == monoid::minimum);
  switch (c.takes) {
    case partial_class::all: return holds(op, c, kind, all, false);
    case partial_class::first: return holds(op, c, kind, 1, false);
    case partial_class::quotient: return holds(op, c, kind, 1, true);
    default:
      for (int k = 0; k < operands_of(op); ++k)
        if (!holds(op, c, kind, 1U << k, c.takes == partial_class::scaled)) return false;
      return true;
  }
}
constexpr bool keeps_law(opcode op) {
  for (const monoid kind : {monoid::add, monoid::multiply, monoid::maximum, monoid::minimum, monoid::and_, monoid::or_}) {
    node n;
    n.op = op;
    n.type = kind == monoid::and_ || kind == monoid::or_ ? dtype::s32 : dtype::f64;
    if (!is_sound(op, n.type, kind, elementwise_op::meets(n, kind))) return false;
  }
  return true;
}

template <std::size_t I>
struct law_of {
  static constexpr auto op = static_cast<opcode>(I);
  static_assert(!elementwise_op::owns(op) || op == opcode::map || keeps_law(op), "a class in ops/elementwise.hpp is refuted");
};
template <std::size_t... I>
constexpr std::size_t check(std::index_sequence<I...>) {
  return (sizeof(law_of<I>) + ...);
}
static_assert(check(std::make_index_sequence<static_cast<std::size_t>(opcode::first_listed)>{}) > 0);

// The law refutes what is wrong.
static_assert(!is_sound(opcode::multiply, dtype::f64, monoid::add, {partial_class::all}));
static_assert(!is_sound(opcode::multiply, dtype::f64, monoid::maximum, {partial_class::one}));
static_assert(!is_sound(opcode::relu, dtype::f64, monoid::add, {partial_class::all}));
static_assert(!is_sound(opcode::add, dtype::f64, monoid::add, {partial_class::one}));
static_assert(!is_sound(opcode::divide, dtype::f64, monoid::add, {partial_class::one}));
static_assert(!is_sound(opcode::subtract, dtype::f64, monoid::maximum, {partial_class::one}));
static_assert(!is_sound(opcode::negate, dtype::f64, monoid::maximum, {partial_class::all}));
static_assert(!is_sound(opcode::sine, dtype::f64, monoid::maximum, {partial_class::all}));

// Reductions: only by the function by which the operand is partial.
constexpr bool reduces_only_its_own() {
  for (const monoid by : {monoid::add, monoid::multiply, monoid::maximum, monoid::minimum})
    for (const monoid kind : {monoid::add, monoid::multiply, monoid::maximum, monoid::minimum}) {
      node n;
      n.op = code_of<reduce_op>;
      n.type = dtype::f64;
      n.reduced_by = by;
      bool is_law = true;  // of two numbers on each of two devices
      for (const double a : {-2.0, 1.0})
        for (const double b : {-3.0, 2.0})
          for (const double c : {-1.0, 4.0})
            for (const double d : {-5.0, 0.5})
              is_law = is_law &&
                       joined(by, joined(kind, a, c), joined(kind, b, d)) == joined(kind, joined(by, a, b), joined(by, c, d));
      if (reduce_op::meets(n, kind).takes == partial_class::all && !is_law) return false;
    }
  return true;
}
static_assert(reduces_only_its_own());

}  // namespace
}  // namespace gspmd::detail
