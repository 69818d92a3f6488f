// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/support/target.hpp"
#include "gspmd/extend/kernel.hpp"

namespace gspmd::detail {

/// The block of scores that attention holds in memory: `rows` rows of q by `cols` rows of k.
struct attention_block {
  std::int64_t rows = 0, cols = 0;

  /// Picks the size of a block. Two blocks of floats fit into a core's cache. Products of 128 rows are faster than
  /// products of 64 rows, but with them causal attention computes more unused scores.
  static constexpr attention_block of(std::int64_t rows, std::int64_t cols, bool is_causal) {
    constexpr std::int64_t most_columns = 256;
    const std::int64_t most_rows = is_causal ? 64 : 128;
    return {rows < most_rows ? rows : most_rows, cols < most_columns ? cols : most_columns};
  }
  /// Returns the elements of scratch for the result: the scores, and the largest score and the sum of each row.
  [[nodiscard]] constexpr std::int64_t forward_elems() const { return rows * (cols + 2); }
  /// Returns the elements of scratch for the gradient: the scores and their gradients.
  [[nodiscard]] constexpr std::int64_t backward_elems() const { return 2 * rows * cols; }
};

inline namespace GSPMD_TARGET {

/// Computes attention of the blocks of one device (nn/detail/attention_kernel.hpp), of `rank` dims. The blocks are q,
/// k, v, the scale and, if `is_causal`, the positions that the rows of q see. Then come the result, the logarithms of
/// the sums of exponentials, and scratch.
template <class T>
void attend_blocks(int rank, bool is_causal, const erased_block* blocks);
/// Computes the gradient of attention. The blocks are q, k, v, the result, the gradient of the result, the logarithms,
/// the scale and the positions that rows see. Then come the gradients of q, k and v, and scratch.
template <class T>
void attend_blocks_back(int rank, bool is_causal, const erased_block* blocks);

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
