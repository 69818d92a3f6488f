// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/ir/plan.hpp"

namespace gspmd::detail {

/// Who makes the value of an operator in the program that every device runs.
enum class origin : std::uint8_t {
  given,    // an input of the program
  source,   // every device, whatever the sharding, wherever it is read: no form of it is ever moved
  renamed,  // its operand, in another sharding
  viewed,   // its operand, where it lies, under another shape and sharding: in the local view, or back in the global one
  shards,   // the operator, from shards of its operands
  region,   // a body: loops and conditionals
  result,   // the operator before it: a further result
};

/// The way in which an operator on shards runs when the local program is turned into steps.
enum class realisation : std::uint8_t {
  loop,     // a part of a loop over elements, with the elementwise operators around it
  strides,  // nothing where a loop can read it through strides; else a loop of its own
  alias,    // another name for the memory of its operand
  steps,    // steps of its own: `lower`
  region,   // what loops and conditionals are made of
};

/// The words and facts of an operator that reports need. A plan knows its operators by their words: if it knew them by their facts, a
/// program that is planned while compiling would have the rules of its operators as machine code.
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
