// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/ops/reshape.hpp"

namespace gspmd::detail {

/// Operators whose result is known when the program is rewritten: one number in every element, or an operand.
///
///   2 * 3, broadcast(4) + 1, where(true, 1, 2)      constants
///   x * 1, x / 1, x - 0, x + -0.0                    x
///   reshape(x, the shape of x), roll(x, 0)           x
///
/// A broadcast of a constant stays a broadcast, which costs nothing: a user that reduces or reshards the value needs
/// its shape.
///
/// Only results with the same bits are folded: x + 0.0 is not -0.0 if x is. Results that overflow, are NaN, or are so
/// small that they lose digits are computed when the program runs. An annotated node is not replaced by another value.
/// Nothing is folded in the explicit and the manual mode, because there the type of each operator is checked.
class folded_nodes {
 public:
  constexpr explicit folded_nodes(const graph& g)
      : graph_(g), numbers_(g.nodes.size(), number{}), is_on_(!g.states_communication()) {}

  /// Must be called for each operator, operands first.
  constexpr void look_at(int i) {
    const node& n = at(i);
    if (n.op == opcode::constant) return note(i, {n.real, n.integer, true});
    if (!is_on_ || n.results != 1 || n.operands.empty()) return;
    const auto runs = facts_of(n.op).runs;
    const bool repeats = runs == realisation::strides || runs == realisation::alias;
    if (repeats && n.operands.count == 1 && facts_of(n.op).made == origin::shards) return note(i, numbers_[n.operands[0]]);
    if (is_elementwise(n.op) && n.function == nullptr) note(i, computed(n));
  }
  /// Returns true if node `i` computes one number for all elements.
  [[nodiscard]] constexpr bool is_number(int i) const { return is_elementwise(at(i).op) && numbers_[i].is_known; }
  constexpr void make_constant(node& n, int i) const {
    n.op = opcode::constant;
    n.operands.clear();
    n.attributes.clear();
    n.real = is_floating(n.type) ? numbers_[i].real : 0;
    n.integer = is_floating(n.type) ? 0 : numbers_[i].integer;
  }
  /// Returns the operand that node `i` is equal to, or -1.
  [[nodiscard]] constexpr int operand_of(int i) const {
    const node& n = at(i);
    if (is_on_ && n.op == code_of<reshape_op> && !n.annotated && at(n.operands[0]).shape == n.shape) return n.operands[0];
    if (!is_on_ || !is_elementwise(n.op) || n.function != nullptr || n.annotated || is_complex(n.type)) return -1;
    const int k = place_of_operand(n);
    return k >= 0 && at(n.operands[k]).type == n.type ? n.operands[k] : -1;
  }

 private:
  struct number {
    double real = 0;
    std::int64_t integer = 0;
    bool is_known = false;
  };
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[i]; }
  constexpr void note(int i, const number& x) { numbers_[i] = x; }

  // ---- results that are an operand ----

  [[nodiscard]] constexpr int place_of_operand(const node& n) const {
    const auto is = [&](int k, double real, std::int64_t integer) {
      const number& x = numbers_[n.operands[k]];
      if (!x.is_known) return false;
      return is_floating(n.type) ? x.real == real && (x.real != 0 || is_negative_zero(x.real) == is_negative_zero(real))
                                 : x.integer == integer;
    };
    if (n.op.loop().has_condition) return !numbers_[n.operands[0]].is_known ? -1 : numbers_[n.operands[0]].integer != 0 ? 1 : 2;
    const neutral_operand& neutral = elementwise_facts_of(n.op).neutral;
    if (neutral.right && is(1, neutral.real, neutral.integer)) return 0;
    return neutral.left && is(0, neutral.real, neutral.integer) ? 1 : -1;
  }
  static constexpr bool is_negative_zero(double x) { return x == 0 && std::bit_cast<std::uint64_t>(x) != 0; }

  // ---- results that are a number ----

  /// Returns true if products, quotients, sums and differences of such numbers do not overflow and round as those of
  /// normal numbers.
  static constexpr bool is_ordinary(double x) {
    const double size = x < 0 ? -x : x;
    return size == 0 || (size >= 1e-30 && size <= 1e30);
  }
  [[nodiscard]] constexpr number computed(const node& n) const {
    const dtype from = at(n.operands[n.operands.count - 1]).type;
    for (const int o : n.operands)
      if (!numbers_[o].is_known) return {};
    if (is_complex(n.type) || is_complex(from) || is_narrow(n.type) || is_narrow(from)) return {};
    const number a = numbers_[n.operands[0]], b = numbers_[n.operands[n.operands.count - 1]];
    if (n.op.loop().has_condition) return a.integer != 0 ? numbers_[n.operands[1]] : b;
    const auto& facts = elementwise_facts_of(n.op);
    if (facts.folds == folding::never) return {};
    if (is_compare(n.op)) return compared(facts.folded, from, a, b);
    if (is_floating(from) && is_floating(n.type)) {
      const double x = rounded(from, a.real), y = rounded(from, b.real);
      if (facts.folds == folding::integers || !is_ordinary(x) || !is_ordinary(y)) return {};
      if (facts.folds == folding::floats_unless_by_zero && y == 0) return {};
      // A product, quotient, sum or difference of floats is that of doubles, rounded to float.
      return real(n.type, facts.folded.real(x, y));
    }
    if (is_floating(from) || is_floating(n.type) || n.type != from || facts.folds == folding::floats_unless_by_zero) return {};
    const auto bits = facts.folded.bits(static_cast<std::uint64_t>(a.integer), static_cast<std::uint64_t>(b.integer));
    return n.type == dtype::pred ? number{0, static_cast<std::int64_t>(bits & 1U), true} : whole(n.type, bits);
  }
  static constexpr number compared(const folded_values& folded, dtype type, const number& a, const number& b) {
    if (type == dtype::u64 && (a.integer < 0 || b.integer < 0)) return {};
    int order = 0;  // negative if a < b, positive if a > b
    if (is_floating(type)) {
      const double x = rounded(type, a.real), y = rounded(type, b.real);
      if (!is_ordinary(x) || !is_ordinary(y)) return {};
      order = x < y ? -1 : x > y ? 1 : 0;
    } else {
      order = a.integer < b.integer ? -1 : a.integer > b.integer ? 1 : 0;
    }
    return {0, folded.compared(order) ? 1 : 0, true};
  }
  /// Returns `x` rounded to the type. Returns numbers that are not ordinary, NaN included, unchanged: callers check
  /// is_ordinary before they use the result.
  static constexpr double rounded(dtype type, double x) {
    return type == dtype::f32 && is_ordinary(x) ? static_cast<double>(static_cast<float>(x)) : x;
  }
  static constexpr number real(dtype type, double x) {
    if (!is_ordinary(x)) return {};
    return {rounded(type, x), 0, true};
  }
  /// Returns the integer of a type that has these bits.
  static constexpr number whole(dtype type, std::uint64_t bits) {
    const auto unused = 64 - 8 * static_cast<unsigned>(bytes_of(type));
    if (unused == 0) return {0, static_cast<std::int64_t>(bits), true};
    const auto left = static_cast<std::int64_t>(bits << unused);
    const bool has_sign = facts_of(type).is_integer && facts_of(type).least < 0;
    return {0, has_sign ? left >> unused : static_cast<std::int64_t>(bits << unused >> unused), true};
  }

  const graph& graph_;
  vec<number> numbers_;  // by node
  bool is_on_;
};

}  // namespace gspmd::detail
