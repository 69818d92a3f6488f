// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/axis_state.hpp"
#include "gspmd/detail/support/span.hpp"

/// The typing rule: which states of its operands along one axis an operator takes, and the state of its result.
namespace gspmd::detail {

/// How an operator takes operands that are partial: f of the terms, put together, is f of what they stand for.
enum class partial_class : std::uint8_t {
  none,      // in no operand
  all,       // in all operands at once: add, concatenate; of a single operand, sum
  affine,    // in none, because of a number that the operator brings itself: a pad by 1
  one,       // in one operand, whichever, the others being equal data: multiply
  first,     // in operand 0 alone, the others being equal data: divide
  scaled,    // in one operand where the others are numbers above 0, else in none: multiply, of maxima
  quotient,  // in operand 0 where the others are numbers above 0, else in none: divide, of maxima
};

/// The class of an operator: which of its operands may be partial, and which are selectors. A selector chooses and is not computed with: an
/// index, a predicate. It has no gradient.
struct operator_class {
  partial_class takes = partial_class::none;
  std::uint32_t selectors = 0;  // by operand
  bool turns_order = false;     // a partial maximum becomes a partial minimum
  bool detaches = false;        // the result has no gradient
};
inline constexpr std::uint32_t every_operand = ~std::uint32_t{0};  // of what has no gradient in any: a comparison

/// Why operands do not go together.
enum class conflict : std::uint8_t { none, states, partial_varying, nonlinear, affine, product, denominator };

struct meeting {
  state result = state::constant;
  conflict broken = conflict::none;
  int operand = 0;  // that is in the way
};

/// The rule, on every axis by itself; shards count as varying. It holds for the gradients too: what it accepts gives each operand its
/// gradient in the dual state without a message, and what it refuses cannot (tests/unit/states.cpp tries all of it).
///
///   C..  -> C      R,C -> R      I,C -> I      V,R,C -> V      P -> P as the class says      I with R, V or P: refused
constexpr meeting meet(const operator_class& c, span<const state> in) {
  bool replica = false, varying = false;
  int invariant = -1, partial = -1, whole = -1;  // the first operand that is so
  int data = 0, partials = 0, last_partial = -1;
  for (int k = 0; k < static_cast<int>(in.size()); ++k) {
    const state s = in[static_cast<std::size_t>(k)] == state::shard ? state::varying : in[static_cast<std::size_t>(k)];
    const bool selects = k < 32 && (c.selectors >> k & 1U) != 0;
    if (selects && s == state::partial) return {state::partial, conflict::nonlinear, k};
    if (selects && s != state::varying) continue;
    replica = replica || s == state::replica;
    varying = varying || s == state::varying;
    if (s == state::invariant && invariant < 0) invariant = k;
    if (!selects) {
      ++data;
      if (s != state::partial && whole < 0) whole = k;
    }
    if (s != state::partial) continue;
    ++partials;
    if (partial < 0) partial = k;
    last_partial = k;
  }
  if (invariant >= 0 && (replica || varying || partial >= 0)) return {state::varying, conflict::states, invariant};
  if (partial >= 0 && varying) return {state::partial, conflict::partial_varying, partial};
  if (partial >= 0) {
    switch (c.takes) {
      case partial_class::scaled:  // who knows the numbers says one, or first
      case partial_class::quotient:
      case partial_class::none: return {state::partial, conflict::nonlinear, partial};
      case partial_class::affine: return {state::partial, conflict::affine, partial};
      case partial_class::all:
        if (partials != data) return {state::partial, conflict::affine, whole};
        break;
      case partial_class::one:
        if (partials != 1) return {state::partial, conflict::product, last_partial};
        break;
      case partial_class::first:
        if (partials != 1 || partial != 0) return {state::partial, conflict::denominator, last_partial};
        break;
    }
  }
  return {partial >= 0     ? state::partial
          : varying        ? state::varying
          : invariant >= 0 ? state::invariant
          : replica        ? state::replica
                           : state::constant};
}

}  // namespace gspmd::detail
