// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/loops.hpp"
#include "gspmd/detail/ir/permutation_plan.hpp"
#include "gspmd/detail/ir/reduction_plan.hpp"
#include "gspmd/detail/ir/sum_parts.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// The description of a local einsum of two operands, and its algorithm.
namespace gspmd::detail {

inline constexpr int max_letters = 2 * max_rank;

/// A dim of the left operand that is read through a window. Its index is first + step * letter + inner_step * inner,
/// where `letter` is the letter in the operand's list.
struct contraction_window {
  std::int8_t letter = 0, inner = 0;
  std::int64_t first = 0, step = 1, inner_step = 1;
  std::int64_t extent = 1;  // of the dim
  std::int64_t base = 1;    // only indices that equal `held` modulo base are nonzero
  std::int64_t held = 0;
  friend constexpr bool operator==(const contraction_window&, const contraction_window&) = default;
};

/// An einsum equation on dense row-major local arrays. Letters are small integers. No letter occurs twice in one
/// operand. Every letter of the result occurs in an operand.
struct contraction {
  inline_vec<std::int8_t, max_rank> lhs, rhs, out;
  inline_vec<std::int64_t, max_letters> extent;         // per letter, as allocated
  std::uint64_t padded = ~std::uint64_t{0};             // letters whose extent is smaller on some device
  inline_vec<contraction_window, max_windows> windows;  // each letter of a window occurs in another operand or in the result
  bool is_narrow = false;  // operands may be stored in a type that is narrower than the type of the computation
  friend constexpr bool operator==(const contraction&, const contraction&) = default;
};

/// The steps on an operand before the product, in this order. Both write to scratch.
struct operand_steps {
  bool reduced = false;  // letters that only this operand has are summed
  reduction_spec reduction;
  inline_vec<std::int8_t, max_rank> letters;  // per dim of the operand, for the bounds of the reduction
  std::int64_t reduced_at = 0;
  bool packed = false;  // the dims are permuted to an order that strides can express
  permutation_spec packing;
  std::int64_t packed_at = 0;
  friend constexpr bool operator==(const operand_steps&, const operand_steps&) = default;
};

/// A loop over the elements of lhs, rhs and the result around the kernel.
using contraction_loop = strided_loop<3>;

/// A window over a dim with mostly zeros. For each index of the inner letter, only every period-th index of the outer
/// letter reads a nonzero element. Each index of the inner letter becomes its own contraction over only these outer
/// indices. The contractions run in sequence.
struct contraction_phase {
  enum place : std::int8_t { nowhere, in_loops, in_sums, in_rows };
  contraction_loop inner, outer;  // over all indices
  std::int64_t first = 0, step = 1, inner_step = 1;
  // first + step * outer + inner_step * inner is a multiple of base for every period-th `outer`
  std::int64_t base = 1, period = 1;
  place where = nowhere;   // the position of the outer letter in the plan
  std::int8_t number = 0;  // of its loop or sum
  std::int8_t letter = 0, inner_letter = 0;
  bool sums_inner = false;
  friend constexpr bool operator==(const contraction_phase&, const contraction_phase&) = default;
};

inline constexpr int max_direct_dims = 3;

/// A contraction that a convolution library can run as one convolution (find_direct_convolution), with the strides of
/// its tensors in elements. The features are the last dim of operand and result.
struct direct_convolution {
  struct along_dim {
    std::int64_t in = 1, in_stride = 1, window = 1, window_stride = 1, out = 1, out_stride = 1, step = 1, dilation = 1;
    friend constexpr bool operator==(const along_dim&, const along_dim&) = default;
  };
  bool is_one = false;
  bool makes_window = false;                     // computes the window from operand and result
  std::int64_t lhs_first = 0, window_first = 0;  // offsets of the first elements
  std::int64_t batch = 1, batch_in_stride = 1, batch_out_stride = 1;
  std::int64_t in_features = 1, in_feature_stride = 1, window_in_stride = 1;
  std::int64_t out_features = 1, out_feature_stride = 1, window_out_stride = 1;
  inline_vec<along_dim, max_direct_dims> windows;
  friend constexpr bool operator==(const direct_convolution&, const direct_convolution&) = default;
};

/// The algorithm of a contraction. Example: "bshd,bthd->bhst" is loops over b and h around one product with M = s, N =
/// t, K = d.
///
///   1. operand_steps of both operands.
///   2. `loops` over letters of the result that the product does not cover.
///   3. Inside them, `sums` over contracting letters, outer to inner. The last `merged_sums` letters are contiguous, so
///      that they form one K, if all except the first letter are whole. Otherwise they are loops too, which accumulate.
///   4. Inside them, the kernel: a matrix product, or a multiplication along one vector of the result. The latter is
///      used if the innermost letter of the product is a batch letter, so the product contains no matrix.
///      With `phases`, steps 2 to 4 run for each phase and add to zeros.
///   5. Long sums are computed in parts, which are then summed.
///   6. `unpacking`: if the product writes to scratch, its dims are permuted to the order of the result.
struct contraction_plan {
  std::int64_t out_elems = 0;
  std::int64_t scratch_elems = 0;
  inline_vec<std::int8_t, max_letters> summed;  // letters whose bound is checked; a bound of 0 gives zeros
  operand_steps lhs, rhs;
  // the first element that the windows of the left operand read, in elements of the product's operand
  std::int64_t lhs_first = 0;
  bool unpacked = false;
  permutation_spec unpacking;
  std::int64_t unpacked_at = 0;

  inline_vec<contraction_loop, max_letters> loops;
  inline_vec<contraction_loop, max_rank> sums;
  inline_vec<std::int8_t, max_rank> sum_letter;
  int merged_sums = 0;
  std::int64_t parts_at = 0;  // in scratch: space for the parts of sum_in_parts, one piece for each level
  int levels = 0;

  bool has_phases = false;
  inline_vec<contraction_phase, max_windows> phases;

  direct_convolution direct;

  bool is_vector = false;
  contraction_loop vector;  // the kernel along one vector; its stride in the result is 1
  bool is_swapped = false;  // the product is (op(rhs) op(lhs)): the result is stored N-major
  bool transpose_first = false, transpose_second = false;
  std::int64_t m = 1, n = 1;
  std::int64_t first_ld = 1, second_ld = 1, out_ld = 1;
  // terms of the product that are widened together, in scratch; 0: operands are not narrow
  std::int64_t panel = 0, panels_at = 0;
  friend constexpr bool operator==(const contraction_plan&, const contraction_plan&) = default;
};

/// Returns the number of terms of the last sum that count as one addition. Libraries sum the K of a matrix product in
/// blocks, except for small results. Inner products and matrix-vector products already sum in parts.
constexpr std::int64_t terms_in_turn(const contraction_plan& plan) {
  if (plan.merged_sums == 0) return 1;
  if (plan.m == 1 || plan.n == 1) return std::int64_t{1} << 48;
  return plan.m * plan.n <= 1024 ? 8 : 256;
}

/// Returns the number of levels of parts in a plan's sums, for any device. The K of a product contains all merged sums
/// only if the inner ones are whole.
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
