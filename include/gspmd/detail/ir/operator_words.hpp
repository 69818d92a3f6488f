// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/ir/plan.hpp"

namespace gspmd::detail {

/// The origin of an operator's value in the program that every device runs.
enum class origin : std::uint8_t {
  given,    // an input of the program
  source,   // every device computes it in any sharding, so it is never moved
  renamed,  // its operand, with another sharding
  viewed,   // the memory of its operand, with another shape and sharding: in the local view, or back in the global view
  shards,   // the operator computes it from shards of its operands
  region,   // the body of a loop or conditional
  result,   // the previous operator: a further result
};

/// The way to lower an operator on shards to steps.
enum class realisation : std::uint8_t {
  loop,     // a part of a loop over elements, together with other elementwise operators
  strides,  // no step if a loop can read it through strides; otherwise a separate loop
  alias,    // another name for the memory of its operand
  steps,    // separate steps: `lower`
  region,   // the operators of loops and conditionals
};

/// The words and facts of an operator that reports need. A plan stores only these. With all facts, the code of a
/// program that is planned at compile time would contain the rules of its operators.
struct operator_words : operator_name {
  origin made = origin::shards;
  realisation runs = realisation::steps;
  void (*describe)(std::string&, const plan_view&, const plan_step*) = nullptr;

  constexpr operator_words() = default;
  constexpr operator_words(const operator_name& said, origin made_, realisation runs_,
                           void (*describe_)(std::string&, const plan_view&, const plan_step*))
      : operator_name(said), made(made_), runs(runs_), describe(describe_) {}
};
template <class O>
inline constexpr operator_words words_for{operator_name(O::name), O::made, O::runs, O::describe};

}  // namespace gspmd::detail
