// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gspmd/detail/ir/meet.hpp"
#include "gspmd/detail/support/text.hpp"

/// The mistakes that a program in the explicit or the manual mode can have: a closed list.
namespace gspmd::detail {

enum class mode_mistake : std::uint8_t {
  none,
  state_conflict,         // an operand is invariant and another one is not
  partial_varying_mix,    // one is partial and another one varies
  partial_nonlinear,      // a function of the terms that is not terms of the function
  partial_affine,         // a number would be counted on every device
  partial_product,        // a product of two sums is no sum of products
  partial_denominator,    // nor is a quotient by a sum
  wrong_source,           // a transition from another state than the value has
  wrong_target,           // or to one that its kind of transition does not lead to
  needs_communication,    // elements would move that nobody asked to
  elementwise_conflict,   // a dim is split in one operand and not in another one
  ambiguous_contraction,  // the same of a dim that is summed
  batch_mismatch,         // the same of another dim that operands share
  op_on_whole_dim,        // the operator wants the dim whole
  axis_used_twice,
  axis_order,  // axes split one dim in another order
  dim_out_of_range,
  rank_mismatch,
  mesh_mismatch,
  carry_mismatch,
  branch_mismatch,
  predicate_varying,  // a collective where devices go different ways
  out_spec_mismatch,
  in_spec_mismatch,
  axis_mode,     // a state that the mode does not have
  unbound_axis,  // an axis that is not there
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

/// One mistake, with the ways out of it, cheapest first.
struct typed_mistake {
  mode_mistake kind = mode_mistake::none;
  int node = -1;
  int operand = -1;  // -1: none
  int axis = -1;     // of the mesh; -1: none
  text what;
  constant_vector<text> remedies;
};

}  // namespace gspmd::detail
