// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/local_function.hpp"
#include "gspmd/detail/support/target.hpp"

namespace gspmd::detail {

/// The block of scores that attention has in memory at a time: so many rows of q by so many rows of k.
struct attention_block {
  std::int64_t rows = 0, cols = 0;

  /// Two blocks of floats stay in a core's cache. Products of 128 rows are faster than those of 64, and causal attention computes more
  /// scores in vain with them.
  static constexpr attention_block of(std::int64_t rows, std::int64_t cols, bool is_causal) {
    constexpr std::int64_t most_columns = 256;
    const std::int64_t most_rows = is_causal ? 64 : 128;
    return {rows < most_rows ? rows : most_rows, cols < most_columns ? cols : most_columns};
  }
  /// Elements of scratch for the result: the scores, and of each row the largest one and the sum.
  [[nodiscard]] constexpr std::int64_t forward_elems() const { return rows * (cols + 2); }
  /// For the gradient: the scores and their gradients.
  [[nodiscard]] constexpr std::int64_t backward_elems() const { return 2 * rows * cols; }
};

inline namespace GSPMD_TARGET {

/// Attention of the blocks of one device (kernels/attention.hpp), of `rank` dims: q, k, v, the scale and, if `is_causal`, what the rows of q
/// see; then the result, the logarithms of the sums of exponentials, and scratch.
template <class T>
void attend_blocks(int rank, bool is_causal, const erased_block* blocks);
/// Its gradient: q, k, v, the result, the gradient by it, the logarithms, the scale and what rows see; then the gradients by q, k and v, and
/// scratch.
template <class T>
void attend_blocks_back(int rank, bool is_causal, const erased_block* blocks);

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
