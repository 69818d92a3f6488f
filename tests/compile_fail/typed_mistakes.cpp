// SPDX-License-Identifier: Apache-2.0
// Every kind of mistake that the explicit mode reports in C++. Each mistake is one error.
// mistakes: 23
// expect: gradient of operand 1 would miss a
// expect: partial values and values of single
// expect: and relu of the
// expect: and cast of the
// expect: operand 1 is constant over
// expect: operand 1 is a replica over
// expect: product of sums is not the sum of
// expect: `x`: a quotient by a sum is not the
// expect: no transition leads
// expect: element 2 moves from part 0 to part
// expect: only one operand, or otherwise;
// expect: operand, and it is summed; write
// expect: both have is split in only one
// expect: operator works on that dim as a
// expect: the axis would split two dims of
// expect: operand has the axes of a dim in
// expect: input 0: mesh_mismatch: the tensor
// expect: input 0: the sharding names 1 dim
// expect: `z` is not an axis of the mesh; its
// expect: x]; `out` only reduces a partial
// expect: loop at typed_mistakes.hpp
// expect: cond at typed_mistakes.hpp
// expect: loss is a replica over `x`: begun
#include <gspmd/gspmd.hpp>

#include "../support/typed_mistakes.hpp"

#ifndef FIXED
constexpr int state_conflict = typed_mistakes::state_conflict::step::device_count;                // <- here
constexpr int partial_varying_mix = typed_mistakes::partial_varying_mix::step::device_count;      // <- here
constexpr int partial_nonlinear = typed_mistakes::partial_nonlinear::step::device_count;          // <- here
constexpr int partial_rounded = typed_mistakes::partial_rounded::step::device_count;              // <- here
constexpr int partial_affine = typed_mistakes::partial_affine::step::device_count;                // <- here
constexpr int partial_affine_bias = typed_mistakes::partial_affine_bias::step::device_count;      // <- here
constexpr int partial_product = typed_mistakes::partial_product::step::device_count;              // <- here
constexpr int partial_denominator = typed_mistakes::partial_denominator::step::device_count;      // <- here
constexpr int wrong_target = typed_mistakes::wrong_target::step::device_count;                    // <- here
constexpr int needs_communication = typed_mistakes::needs_communication::step::device_count;      // <- here
constexpr int elementwise_conflict = typed_mistakes::elementwise_conflict::step::device_count;    // <- here
constexpr int ambiguous_contraction = typed_mistakes::ambiguous_contraction::step::device_count;  // <- here
constexpr int batch_mismatch = typed_mistakes::batch_mismatch::step::device_count;                // <- here
constexpr int op_on_whole_dim = typed_mistakes::op_on_whole_dim::step::device_count;              // <- here
constexpr int axis_used_twice = typed_mistakes::axis_used_twice::step::device_count;              // <- here
constexpr int axis_order = typed_mistakes::axis_order::step::device_count;                        // <- here
constexpr int mesh_mismatch = typed_mistakes::mesh_mismatch::step::device_count;                  // <- here
constexpr int rank_mismatch = typed_mistakes::rank_mismatch::step::device_count;                  // <- here
constexpr int unbound_axis = typed_mistakes::unbound_axis::step::device_count;                    // <- here
constexpr int out_spec_mismatch = typed_mistakes::out_spec_mismatch::step::device_count;          // <- here
constexpr int carry_mismatch = typed_mistakes::carry_mismatch::step::device_count;                // <- here
constexpr int branch_mismatch = typed_mistakes::branch_mismatch::step::device_count;              // <- here
constexpr int loss_state = typed_mistakes::loss_state::step::device_count;                        // <- here
#endif

int main() {}
