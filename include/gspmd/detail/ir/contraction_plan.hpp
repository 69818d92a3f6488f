// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/loops.hpp"
#include "gspmd/detail/ir/permutation_plan.hpp"
#include "gspmd/detail/ir/reduction_plan.hpp"
#include "gspmd/detail/ir/sum_parts.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// The description of a local einsum of two operands, and the algorithm that runs it.
namespace gspmd::detail {

inline constexpr int max_letters = 2 * max_rank;

/// A dim of the left operand that is read through a window: its index is first + step * letter + inner_step * inner, the letter
/// being the one that stands in the operand's list.
struct contraction_window {
  std::int8_t letter = 0, inner = 0;
  std::int64_t first = 0, step = 1, inner_step = 1;
  std::int64_t extent = 1;  // of the dim
  std::int64_t base = 1;    // only indices that are `held` modulo base are not zero
  std::int64_t held = 0;
  friend constexpr bool operator==(const contraction_window&, const contraction_window&) = default;
};

/// An einsum equation on dense row-major local arrays. Letters are small integers; no letter occurs twice in one operand,
/// and every letter of the result occurs in an operand.
struct contraction {
  inline_vec<std::int8_t, max_rank> lhs, rhs, out;
  inline_vec<std::int64_t, max_letters> extent;         // per letter, as allocated
  std::uint64_t padded = ~std::uint64_t{0};             // letters of which some device may have less
  inline_vec<contraction_window, max_windows> windows;  // all letters in them stand in another operand or the result
  bool is_narrow = false;                               // operands may lie in memory as a type narrower than they are computed as
  friend constexpr bool operator==(const contraction&, const contraction&) = default;
};

/// The steps on an operand before the product, in this order; both write to scratch.
struct operand_steps {
  bool reduced = false;  // letters that only this operand has are summed away
  reduction_spec reduction;
  inline_vec<std::int8_t, max_rank> letters;  // per dim of the operand, for the bounds of the reduction
  std::int64_t reduced_at = 0;
  bool packed = false;  // the dims are brought into an order that strides can express
  permutation_spec packing;
  std::int64_t packed_at = 0;
  friend constexpr bool operator==(const operand_steps&, const operand_steps&) = default;
};

/// A loop over the elements of lhs, rhs and the result around the kernel.
using contraction_loop = strided_loop<3>;

/// A window over a dim most of which is zero: for each index of its inner letter, only every period-th index of the outer letter meets
/// something else. These are done one after the other, each as a contraction of its own, in which the outer letter is as long as that.
struct contraction_phase {
  enum place : std::int8_t { nowhere, in_loops, in_sums, in_rows };
  contraction_loop inner, outer;  // whole
  std::int64_t first = 0, step = 1, inner_step = 1;
  std::int64_t base = 1, period = 1;  // first + step * outer + inner_step * inner is a multiple of base, every period-th time
  place where = nowhere;              // the outer letter, in the plan
  std::int8_t number = 0;             // of the loop or sum that it is
  std::int8_t letter = 0, inner_letter = 0;
  bool sums_inner = false;
  friend constexpr bool operator==(const contraction_phase&, const contraction_phase&) = default;
};

inline constexpr int max_direct_dims = 3;

/// A contraction that a library of convolutions can do as one (find_direct_convolution), and how its tensors lie, in elements. Operand and
/// result have their features last.
struct direct_convolution {
  struct along_dim {
    std::int64_t in = 1, in_stride = 1, window = 1, window_stride = 1, out = 1, out_stride = 1, step = 1, dilation = 1;
    friend constexpr bool operator==(const along_dim&, const along_dim&) = default;
  };
  bool is_one = false;
  bool makes_window = false;                     // from operand and result
  std::int64_t lhs_first = 0, window_first = 0;  // where the tensors begin
  std::int64_t batch = 1, batch_in_stride = 1, batch_out_stride = 1;
  std::int64_t in_features = 1, in_feature_stride = 1, window_in_stride = 1;
  std::int64_t out_features = 1, out_feature_stride = 1, window_out_stride = 1;
  inline_vec<along_dim, max_direct_dims> windows;
  friend constexpr bool operator==(const direct_convolution&, const direct_convolution&) = default;
};

/// How a contraction is done. Example: "bshd,bthd->bhst" is loops over b and h around one product with M = s, N = t, K = d.
///
/// 1. operand_steps of both operands.
/// 2. `loops` over letters of the result that the product does not cover.
/// 3. Inside, `sums` over contracting letters, outer to inner; the last `merged_sums` of them lie in memory such that they
///    are one K, as long as all but the first of these are whole: otherwise they are looped over too, accumulating.
/// 4. Inside, the kernel: a matrix product, or multiplication along one vector of the result (for products whose innermost
///    letter is a batch letter: there is no matrix in them).
///    With `phases` 2 to 4 are done for each of them, adding to zeros.
/// 5. Long sums are made in parts, which are added up.
/// 6. `unpacking`: where the product writes to scratch, the dims are brought into the result's order.
struct contraction_plan {
  std::int64_t out_elems = 0;
  std::int64_t scratch_elems = 0;
  inline_vec<std::int8_t, max_letters> summed;  // letters whose bound is looked at; a bound of 0 makes zeros
  operand_steps lhs, rhs;
  std::int64_t lhs_first = 0;  // where the windows of the left operand begin, in elements of what the product reads
  bool unpacked = false;
  permutation_spec unpacking;
  std::int64_t unpacked_at = 0;

  inline_vec<contraction_loop, max_letters> loops;
  inline_vec<contraction_loop, max_rank> sums;
  inline_vec<std::int8_t, max_rank> sum_letter;
  int merged_sums = 0;
  std::int64_t parts_at = 0;  // in scratch: room for what sum_in_parts adds up, `levels` pieces
  int levels = 0;

  bool has_phases = false;
  inline_vec<contraction_phase, max_windows> phases;

  direct_convolution direct;

  bool is_vector = false;
  contraction_loop vector;  // the kernel along one vector; its stride in the result is 1
  bool is_swapped = false;  // the product is (op(rhs) op(lhs)): the result lies N-major
  bool transpose_first = false, transpose_second = false;
  std::int64_t m = 1, n = 1;
  std::int64_t first_ld = 1, second_ld = 1, out_ld = 1;
  std::int64_t panel = 0, panels_at = 0;  // terms of the product that are made wider at a time, in scratch; 0: operands are wide
  friend constexpr bool operator==(const contraction_plan&, const contraction_plan&) = default;
};

/// So many terms of the last sum count as one addition. Libraries sum up the K of a matrix product in blocks, but for small results;
/// inner products, and products of a matrix and a vector, make parts themselves.
constexpr std::int64_t terms_in_turn(const contraction_plan& plan) {
  if (plan.merged_sums == 0) return 1;
  if (plan.m == 1 || plan.n == 1) return std::int64_t{1} << 48;
  return plan.m * plan.n <= 1024 ? 8 : 256;
}

/// How often the parts of a plan's sums have parts, on whichever device: the K of a product is made up of all the merged sums only
/// where the inner ones are whole.
constexpr int summing_levels(const contraction_plan& plan, std::uint64_t padded) {
  contraction_loop loops[max_rank];
  int count = plan.sums.count;
  for (int i = 0; i < count; ++i) loops[i] = plan.sums[i];
  for (int left = plan.merged_sums; left > 1 && (padded >> plan.sum_letter[count - 1] & 1U) == 0; --left, --count)
    loops[count - 2].extent *= loops[count - 1].extent;
  for (int levels = 0;; ++levels) {
    const auto cut = part_of_loops(loops, count, terms_in_turn(plan));
    if (cut.loop < 0) return levels;
    loops[cut.loop].extent = cut.size;
  }
}

}  // namespace gspmd::detail
