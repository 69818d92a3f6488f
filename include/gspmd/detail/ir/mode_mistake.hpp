// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gspmd/detail/ir/meet.hpp"
#include "gspmd/detail/support/text.hpp"

/// All mistakes that a program in the explicit or the manual mode can have.
namespace gspmd::detail {

enum class mode_mistake : std::uint8_t {
  none,
  state_conflict,         // one operand is invariant and another one is not
  partial_varying_mix,    // one operand is partial and another one is varying
  partial_nonlinear,      // a nonlinear function of partial values
  partial_affine,         // a constant would be added on every device
  partial_product,        // a product of two sums is not a sum of products
  partial_denominator,    // a quotient by a sum is not a sum of quotients
  wrong_source,           // the value has another state than the transition requires
  wrong_target,           // the transition does not lead to this state
  needs_communication,    // elements would move without a request of the program
  elementwise_conflict,   // a dim is split in one operand and not in another one
  ambiguous_contraction,  // the same for a dim that is summed
  batch_mismatch,         // the same for another dim that operands share
  op_on_whole_dim,        // the operator requires the whole dim
  axis_used_twice,
  axis_order,  // axes split a dim in another order
  dim_out_of_range,
  rank_mismatch,
  mesh_mismatch,
  carry_mismatch,
  branch_mismatch,
  predicate_varying,  // a collective in a branch that only some devices take
  out_spec_mismatch,
  in_spec_mismatch,
  axis_mode,     // a state that does not exist in the mode
  unbound_axis,  // an axis that does not exist
  nested_order,
  loss_state,
  bad_permutation,
};
constexpr std::string_view name_of(mode_mistake m) {
  constexpr std::string_view names[] = {"none",
                                        "state_conflict",
                                        "partial_varying_mix",
                                        "partial_nonlinear",
                                        "partial_affine",
                                        "partial_product",
                                        "partial_denominator",
                                        "wrong_source",
                                        "wrong_target",
                                        "needs_communication",
                                        "elementwise_conflict",
                                        "ambiguous_contraction",
                                        "batch_mismatch",
                                        "op_on_whole_dim",
                                        "axis_used_twice",
                                        "axis_order",
                                        "dim_out_of_range",
                                        "rank_mismatch",
                                        "mesh_mismatch",
                                        "carry_mismatch",
                                        "branch_mismatch",
                                        "predicate_varying",
                                        "out_spec_mismatch",
                                        "in_spec_mismatch",
                                        "axis_mode",
                                        "unbound_axis",
                                        "nested_order",
                                        "loss_state",
                                        "bad_permutation"};
  return names[static_cast<int>(m)];
}

constexpr mode_mistake kind_of(conflict c) {
  switch (c) {
    case conflict::none: return mode_mistake::none;
    case conflict::states: return mode_mistake::state_conflict;
    case conflict::partial_varying: return mode_mistake::partial_varying_mix;
    case conflict::nonlinear: return mode_mistake::partial_nonlinear;
    case conflict::affine: return mode_mistake::partial_affine;
    case conflict::product: return mode_mistake::partial_product;
    case conflict::denominator: return mode_mistake::partial_denominator;
  }
  return mode_mistake::none;
}

/// One mistake, with its remedies, cheapest first.
struct typed_mistake {
  mode_mistake kind = mode_mistake::none;
  int node = -1;
  int operand = -1;  // -1: none
  int axis = -1;     // of the mesh; -1: none
  text what;
  constant_vector<text> remedies;
};

}  // namespace gspmd::detail
