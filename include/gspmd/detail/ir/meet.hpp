// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/axis_state.hpp"
#include "gspmd/detail/support/span.hpp"

/// The typing rule: the states of operands along one axis that an operator accepts, and the state of its result.
namespace gspmd::detail {

/// The partial operands that an operator accepts. The reduction of f of the partial values must equal f of the reduced
/// values.
enum class partial_class : std::uint8_t {
  none,      // no operand
  all,       // all operands together: add, concatenate; of a single operand, sum
  affine,    // no operand, because the operator adds a constant of its own: a pad by 1
  one,       // any one operand, if the other operands are equal data: multiply
  first,     // only operand 0, if the other operands are equal data: divide
  scaled,    // one operand if the other operands are constants above 0, otherwise none: multiply, of maxima
  quotient,  // operand 0 if the other operands are constants above 0, otherwise none: divide, of maxima
};

/// The class of an operator: the operands that can be partial, and the selectors. A selector chooses elements and is
/// not computed with: an index, a predicate. It has no gradient.
struct operator_class {
  partial_class takes = partial_class::none;
  std::uint32_t selectors = 0;  // by operand
  bool turns_order = false;     // a partial maximum becomes a partial minimum
  bool detaches = false;        // the result has no gradient
};
inline constexpr std::uint32_t every_operand = ~std::uint32_t{0};  // of an operator without gradients: a comparison

/// The reason why the states of operands do not fit together.
enum class conflict : std::uint8_t { none, states, partial_varying, nonlinear, affine, product, denominator };

struct meeting {
  state result = state::constant;
  conflict broken = conflict::none;
  int operand = 0;  // the conflicting operand
};

/// Returns the state of the result along one axis. The rule applies to every axis separately; shards count as varying.
/// It covers gradients too. If it accepts the operands, each operand gets its gradient in the dual state without a
/// message. If it refuses them, that is impossible (tests/detail/ir/transition.cpp checks all cases).
///
///   C..  -> C      R,C -> R      I,C -> I      V,R,C -> V      P -> P as the class says      I with R, V or P: refused
constexpr meeting meet(const operator_class& c, span<const state> in) {
  bool replica = false, varying = false;
  int invariant = -1, partial = -1, whole = -1;  // the first operand in this state
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
      case partial_class::scaled:  // callers that know the constants pass `one` or `first` instead
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
