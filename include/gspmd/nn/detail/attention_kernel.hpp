// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gspmd/detail/ir/fused_loop.hpp"
#include "gspmd/detail/ir/scalar_math.hpp"
#include "gspmd/detail/kernels/gemm.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/extend/kernel.hpp"
#include "gspmd/nn/detail/attention_block.hpp"

/// Attention without storing the matrix of scores. It computes blocks of scores by matrix products, and keeps a running
/// maximum and a running sum for each row (Milakov and Gimelshein 2018; Dao et al., FlashAttention, 2022). The gradient
/// recomputes the blocks from the stored logarithms of the sums.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// One head: q [rows, inner], k [cols, inner], v [cols, width].
template <class T>
struct attention_head {
  const T *q, *k, *v;
  std::int64_t rows, cols, inner, width;
  T scale;
  bool is_causal;
  std::int64_t first_seen;  // if is_causal: row r attends to the columns before first_seen + r

  [[nodiscard]] std::int64_t seen_by(std::int64_t row) const {
    return is_causal ? std::clamp<std::int64_t>(first_seen + row, 0, cols) : cols;
  }
};

/// Returns e^x for an x that is not much larger than 0. Returns 0 if the result would not be a normal number.
template <class T>
[[gnu::always_inline]] inline T small_exponential(T x) {
  constexpr T least = std::is_same_v<T, float> ? T(-87) : T(-708);
  const reduced_exponential<T> e(choose(x >= least, x, least));
  const T y = (T(1) + e.less_one) * power_of_two<T>(e.k);
  return choose(x >= least, y, choose(x < least, T(0), x));  // NaN stays NaN
}

/// Returns the maximum of x[i] * factor over n elements.
template <class T>
T largest_product(const T* x, std::int64_t n, T factor) {
  constexpr int lanes = simd_lanes<T>;
  constexpr T least = -std::numeric_limits<T>::infinity();
  const auto factors = broadcast_simd(factor);
  auto one = broadcast_simd(least), other = one;
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    one = combine_lanes<monoid::max>(one, load_simd(x + i) * factors);
    other = combine_lanes<monoid::max>(other, load_simd(x + i + lanes) * factors);
  }
  one = combine_lanes<monoid::max>(one, other);
  T all = least;
  for (int l = 0; l < lanes; ++l) all = combine_lanes<monoid::max>(all, static_cast<T>(one[l]));
  for (; i < n; ++i) all = combine_lanes<monoid::max>(all, static_cast<T>(x[i] * factor));
  return all;
}
template <class T>
T sum_of(const T* x, std::int64_t n) {
  constexpr int lanes = simd_lanes<T>;
  simd<T> one{}, other{};
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    one += load_simd(x + i);
    other += load_simd(x + i + lanes);
  }
  one += other;
  T all = 0;
  for (int l = 0; l < lanes; ++l) all += one[l];
  for (; i < n; ++i) all += x[i];
  return all;
}
template <class T>
T product_of(const T* x, const T* y, std::int64_t n) {
  constexpr int lanes = simd_lanes<T>;
  simd<T> sum{};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum += load_simd(x + i) * load_simd(y + i);
  T all = 0;
  for (int l = 0; l < lanes; ++l) all += sum[l];
  for (; i < n; ++i) all += x[i] * y[i];
  return all;
}
/// Computes x = e^(scale * x - less).
template <class T>
GSPMD_LOOP_FUNCTION void exponentials(T* x, std::int64_t n, T scale, T less) {
  for_each_index(
      n, [=](std::int64_t i) __attribute__((always_inline)) { x[i] = small_exponential<T>(x[i] * scale - less); });
}
template <class T>
GSPMD_LOOP_FUNCTION void scale_row(T* x, std::int64_t n, T factor) {
  for_each_index(
      n, [=](std::int64_t i) __attribute__((always_inline)) { x[i] = x[i] * factor; });
}
/// Computes the gradient of the scores: x = p * (x - less) * scale. On entry, x is the gradient of the probabilities p.
template <class T>
GSPMD_LOOP_FUNCTION void score_gradients(T* x, const T* p, std::int64_t n, T scale, T less) {
  for_each_index(
      n, [=](std::int64_t i) __attribute__((always_inline)) { x[i] = p[i] * (x[i] - less) * scale; });
}

template <class T>
void attend(const attention_head<T>& a, T* result, T* logarithms, T* scratch) {
  constexpr T nothing = -std::numeric_limits<T>::infinity();
  const auto block = attention_block::of(a.rows, a.cols, a.is_causal);
  T *const scores = scratch, *const largest = scores + block.rows * block.cols, *const sum = largest + block.rows;
  for (std::int64_t first = 0; first < a.rows; first += block.rows) {
    const std::int64_t rows = std::min(block.rows, a.rows - first), seen = a.seen_by(first + rows - 1);
    T* const out = result + first * a.width;
    std::fill_n(largest, rows, nothing);
    std::fill_n(sum, rows, T(0));
    for (std::int64_t at = 0; at < seen; at += block.cols) {
      const std::int64_t cols = std::min(block.cols, seen - at);
      gemm(false, true, rows, cols, a.inner, a.q + first * a.inner, a.inner, a.k + at * a.inner, a.inner, scores, block.cols);
      for (std::int64_t r = 0; r < rows; ++r) {
        T* const row = scores + r * block.cols;
        const std::int64_t own = std::clamp<std::int64_t>(a.seen_by(first + r) - at, 0, cols);
        std::fill(row + own, row + cols, T(0));
        if (own == 0) continue;
        const T most = std::max(largest[r], largest_product(row, own, a.scale));
        const T shrink = most > largest[r] ? std::exp(largest[r] - most) : T(1);
        exponentials(row, own, a.scale, most > nothing ? most : T(0));
        sum[r] = sum[r] * shrink + sum_of(row, own);
        largest[r] = most;
        if (at > 0 && shrink != T(1)) scale_row(out + r * a.width, a.width, shrink);
      }
      gemm(false, false, rows, a.width, cols, scores, block.cols, a.v + at * a.width, a.width, out, a.width, at > 0);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      if (a.seen_by(first + r) == 0) std::fill_n(out + r * a.width, a.width, T(0));
      else scale_row(out + r * a.width, a.width, T(1) / sum[r]);
      logarithms[first + r] = largest[r] + std::log(sum[r]);
    }
  }
}

/// Adds to the gradients of q, k and v.
template <class T>
void attend_back(const attention_head<T>& a, const T* result, const T* by_result, const T* logarithms, T* by_q, T* by_k, T* by_v,
                 T* scratch) {
  const auto block = attention_block::of(a.rows, a.cols, a.is_causal);
  T *const shares = scratch, *const scores = shares + block.rows * block.cols;
  for (std::int64_t at = 0; at < a.cols; at += block.cols)
    for (std::int64_t first = 0; first < a.rows; first += block.rows) {
      const std::int64_t rows = std::min(block.rows, a.rows - first);
      const std::int64_t cols = std::min(block.cols, a.seen_by(first + rows - 1) - at);
      if (cols <= 0) continue;
      const T *const q = a.q + first * a.inner, *const k = a.k + at * a.inner, *const v = a.v + at * a.width;
      const T* const by = by_result + first * a.width;
      gemm(false, true, rows, cols, a.inner, q, a.inner, k, a.inner, shares, block.cols);
      gemm(false, true, rows, cols, a.width, by, a.width, v, a.width, scores, block.cols);
      for (std::int64_t r = 0; r < rows; ++r) {
        T *const share = shares + r * block.cols, *const score = scores + r * block.cols;
        const std::int64_t own = std::clamp<std::int64_t>(a.seen_by(first + r) - at, 0, cols);
        std::fill(share + own, share + cols, T(0));
        std::fill(score + own, score + cols, T(0));
        if (own == 0) continue;
        exponentials(share, own, a.scale, logarithms[first + r]);
        score_gradients(score, share, own, a.scale, product_of(by + r * a.width, result + (first + r) * a.width, a.width));
      }
      gemm(true, false, cols, a.width, rows, shares, block.cols, by, a.width, by_v + at * a.width, a.width, true);
      gemm(true, false, cols, a.inner, rows, scores, block.cols, q, a.inner, by_k + at * a.inner, a.inner, true);
      gemm(false, false, rows, a.inner, cols, scores, block.cols, k, a.inner, by_q + first * a.inner, a.inner, true);
    }
}

/// The heads in a device's blocks. All dims except the last two enumerate the heads, and the last dim among them counts
/// heads. Several heads of q may share one head of k and v.
class attention_heads {
 public:
  attention_heads(int rank, const erased_block& q, const erased_block& k) : dims_(rank - 2), extents_(q.extents) {
    const std::int64_t shared = k.extents[dims_ - 1];
    per_shared_ = shared > 0 ? q.extents[dims_ - 1] / shared : 1;
    for (int d = 0; d < dims_; ++d) count_ *= extents_[d];
  }
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Returns the begin of head `i` in a block. `own` is for blocks with the heads of q, `shared` for blocks with the
  /// heads of k.
  template <class T>
  T* own(const erased_block& b, std::int64_t i) const {
    return static_cast<T*>(b.data) + offset(b, i, 1);
  }
  template <class T>
  T* shared(const erased_block& b, std::int64_t i) const {
    return static_cast<T*>(b.data) + offset(b, i, per_shared_);
  }

 private:
  [[nodiscard]] std::int64_t offset(const erased_block& b, std::int64_t i, std::int64_t heads) const {
    std::int64_t at = 0;
    for (int d = dims_ - 1; d >= 0; --d) {
      const std::int64_t index = i % extents_[d];
      at += b.strides[d] * (d == dims_ - 1 ? index / heads : index);
      i /= extents_[d];
    }
    return at;
  }
  int dims_;
  const std::int64_t* extents_;
  std::int64_t per_shared_ = 1, count_ = 1;
};

/// Sets all heads of a block to 0.
template <class T>
void clear_heads(int rank, const erased_block& b) {
  const attention_heads heads(rank, b, b);
  for (std::int64_t i = 0; i < heads.count(); ++i)
    std::fill_n(heads.template own<T>(b, i), b.extents[rank - 2] * b.extents[rank - 1], T(0));
}

/// Returns the inputs of head i. `seen` has the number of columns that the device's first row attends to; null if
/// attention is not causal.
template <class T>
attention_head<T> head_of(const attention_heads& heads, int rank, const erased_block* b, const erased_block& scale,
                          const erased_block* seen, std::int64_t i) {
  return {heads.template own<const T>(b[0], i),
          heads.template shared<const T>(b[1], i),
          heads.template shared<const T>(b[2], i),
          b[0].extents[rank - 2],
          b[1].extents[rank - 2],
          b[0].extents[rank - 1],
          b[2].extents[rank - 1],
          *static_cast<const T*>(scale.data),
          seen != nullptr,
          seen != nullptr ? *static_cast<const std::int32_t*>(seen->data) : 0};
}

template <class T>
void attend_blocks(int rank, bool is_causal, const erased_block* b) {
  const erased_block* const results = b + (is_causal ? 5 : 4);
  const attention_heads heads(rank, b[0], b[1]);
  for (std::int64_t i = 0; i < heads.count(); ++i)
    attend(head_of<T>(heads, rank, b, b[3], is_causal ? b + 4 : nullptr, i), heads.template own<T>(results[0], i),
           heads.template own<T>(results[1], i), static_cast<T*>(results[2].data));
}
template <class T>
void attend_blocks_back(int rank, bool is_causal, const erased_block* b) {
  const erased_block* const results = b + (is_causal ? 8 : 7);
  const attention_heads heads(rank, b[0], b[1]);
  for (int r = 0; r < 3; ++r) clear_heads<T>(rank, results[r]);
  for (std::int64_t i = 0; i < heads.count(); ++i)
    attend_back(head_of<T>(heads, rank, b, b[6], is_causal ? b + 7 : nullptr, i), heads.template own<const T>(b[3], i),
                heads.template own<const T>(b[4], i), heads.template own<const T>(b[5], i), heads.template own<T>(results[0], i),
                heads.template shared<T>(results[1], i), heads.template shared<T>(results[2], i),
                static_cast<T*>(results[3].data));
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
