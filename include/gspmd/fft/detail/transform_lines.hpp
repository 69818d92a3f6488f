// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/fft/detail/line_lanes.hpp"
#include "gspmd/fft/detail/line_transform.hpp"
#include "gspmd/fft/detail/transform_passes.hpp"

/// Discrete Fourier transforms of the lines of a shard, one vector of lines at a time.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Computes out[k] = the sum of x[j] e^(-2 pi i jk / n), or e^(+2 pi i jk / n) / n for the inverse. Transforms one line
/// per lane of `V`.
template <bool IsInverse, class T, class V>
class lines_transformer {
 public:
  using lanes = line_lanes<IsInverse, T, V>;

  lines_transformer(const line_transform& how, complex_pair<T>* scratch) : how_(how), next_(scratch) {
    const std::int64_t longest = how.padded > 0 ? how.padded : how.n / how.rows;
    from_ = buffer(longest);  // first, because vectors must be aligned
    to_ = buffer(longest);
    if (how.padded > 0) begin_convolution();
    else if (how.rows > 1) begin_matrix();
    else along_columns_ = {how.n, roots(how.n)};
  }
  void operator()(const lanes& x, const lanes& y) {
    if (how_.padded > 0) convolve(x, y);
    else if (how_.rows > 1) transform_matrix(x, y);
    else {
      x.load(how_.n, from_);
      y.store(how_.n, transformed(along_columns_), scale());
    }
  }

 private:
  static constexpr int width = lanes::width;
  using pairs = complex_pair<V>;

  [[nodiscard]] T scale() const { return IsInverse ? T(1) / static_cast<T>(how_.n) : T(1); }
  pairs* transformed(const transform_passes<T>& passes) const { return passes(from_, to_); }
  complex_pair<T>* take(std::int64_t n) { return std::exchange(next_, next_ + n); }
  pairs* buffer(std::int64_t n) { return reinterpret_cast<pairs*>(take(n * width)); }
  complex_pair<T>* roots(std::int64_t n) {
    complex_pair<T>* const to = take(n);
    roots_of_unity(n, to);
    return to;
  }

  // Treats a line as a matrix of r rows and c columns. Element j c + b contributes to a r + k in three steps: the
  // transform of column b, multiplication by the roots e^(-2 pi i b k / n), and the transform of row k.
  void begin_matrix() {
    const std::int64_t n = how_.n, coarse = how_.coarse();
    along_columns_ = {n / how_.rows, roots(n / how_.rows)};
    along_rows_ = {how_.rows, roots(how_.rows)};
    fine_ = take(coarse);
    coarse_ = take(coarse);
    for (std::int64_t e = 0; e < coarse; ++e) {
      fine_[e] = root_of_unity<T>(e, n);
      coarse_[e] = root_of_unity<T>(e * coarse % n, n);
    }
    matrix_ = take(n);
    while (std::int64_t{1} << shift_ < coarse) ++shift_;
  }
  void transform_matrix(const lanes& x, const lanes& y) {
    const std::int64_t rows = how_.rows, cols = how_.n / rows;
    // A vector holds several columns of one line, later several rows.
    for (int line = 0; line < x.count; ++line) {
      for (std::int64_t b = 0; b < cols; b += width) {
        lanes::within(x, line, b, cols - b, 1, cols).load(rows, from_);
        pairs* const z = transformed(along_rows_);
        for (std::int64_t k = 0; k < rows; ++k) {
          pairs root{};
          for (int l = 0; l < width && b + l < cols; ++l) {
            const std::int64_t e = (b + l) * k;
            set_lane(root, l, fine_[e & ((std::int64_t{1} << shift_) - 1)] * coarse_[e >> shift_]);
          }
          z[k] = z[k] * root;
        }
        line_lanes<false, T, V>::of(matrix_ + b, cols - b, 1, cols).store(rows, z, T(1));
      }
      for (std::int64_t k = 0; k < rows; k += width) {
        line_lanes<false, T, V>::of(matrix_ + k * cols, rows - k, cols, 1).load(cols, from_);
        lanes::within(y, line, k, rows - k, 1, rows).store(cols, transformed(along_columns_), scale());
      }
    }
  }

  // With c_k = e^(-i pi k^2 / n), the transform is c_k times the convolution of x c with the conjugates of c (Bluestein
  // 1970).
  void begin_convolution() {
    const std::int64_t n = how_.n, m = how_.padded;
    along_columns_ = {m, roots(m)};
    chirp_ = take(n);
    for (std::int64_t k = 0; k < n; ++k) chirp_[k] = root_of_unity<T>(k * k % (2 * n), 2 * n);
    spectrum_ = take(m);
    for (std::int64_t k = 0; k < m; ++k) {
      const std::int64_t from = k < n ? k : m - k;
      const auto c = from < n ? chirp_[from] : complex_pair<T>{};
      from_[k] = {V{} + c.re, V{} - c.im};
    }
    const pairs* const z = transformed(along_columns_);
    for (std::int64_t k = 0; k < m; ++k) spectrum_[k] = get_lane<T>(z[k], 0);
  }
  void convolve(const lanes& x, const lanes& y) {
    const std::int64_t n = how_.n, m = how_.padded;
    x.load(n, from_);
    for (std::int64_t k = 0; k < n; ++k) from_[k] = from_[k] * chirp_[k];
    for (std::int64_t k = n; k < m; ++k) from_[k] = pairs{};
    pairs* const z = transformed(along_columns_);
    for (std::int64_t k = 0; k < m; ++k) {  // the inverse transform is the transform with exchanged real and imaginary parts
      const pairs product = z[k] * spectrum_[k];
      z[k] = {product.im, product.re};
    }
    pairs* const convolved = along_columns_(z, z == from_ ? to_ : from_);
    for (std::int64_t k = 0; k < n; ++k) convolved[k] = pairs{convolved[k].im, convolved[k].re} * chirp_[k];
    y.store(n, convolved, scale() / static_cast<T>(m));
  }

  line_transform how_;
  complex_pair<T>* next_;
  transform_passes<T> along_columns_, along_rows_;
  complex_pair<T>*fine_ = nullptr, *coarse_ = nullptr, *matrix_ = nullptr, *chirp_ = nullptr, *spectrum_ = nullptr;
  int shift_ = 0;
  pairs *from_ = nullptr, *to_ = nullptr;
};

/// Transforms all lines in the order of the memory, one line per lane of `V` at a time.
template <bool IsInverse, class T, class V>
void transform_lines_by(const line_transform& how, int rank, int dim, std::int64_t line_count, const erased_block* blocks) {
  using lanes = line_lanes<IsInverse, T, V>;
  const erased_block &in = blocks[0], &out = blocks[1];
  lines_transformer<IsInverse, T, V> transform(how, static_cast<complex_pair<T>*>(blocks[2].data));
  std::int64_t index[max_rank]{};
  for (std::int64_t done = 0; done < line_count;) {
    lanes x, y;
    x.stride = in.strides[dim];
    y.stride = out.strides[dim];
    for (; x.count < lanes::width && done < line_count; ++done) {
      std::int64_t from = 0, to = 0;
      for (int d = 0; d < rank; ++d) {
        from += index[d] * in.strides[d];
        to += index[d] * out.strides[d];
      }
      x.at[x.count++] = static_cast<complex_pair<T>*>(in.data) + from;
      y.at[y.count++] = static_cast<complex_pair<T>*>(out.data) + to;
      for (int d = rank - 1; d >= 0; --d) {
        if (d == dim) continue;
        if (++index[d] < in.extents[d]) break;
        index[d] = 0;
      }
    }
    transform(x, y);
  }
}

template <bool IsInverse, class T>
void transform_lines(int rank, const erased_block* blocks) {
  int dim = 0;
  while (dim + 1 < rank && blocks[2].extents[dim] == 1) ++dim;
  std::int64_t line_count = 1;
  for (int d = 0; d < rank; ++d)
    if (d != dim) line_count *= blocks[0].extents[d];
  const std::int64_t n = blocks[0].extents[dim];
  if (n == 0 || line_count == 0) return;
  const auto how = line_transform::of(n, line_count);
  if (how.by_vectors) transform_lines_by<IsInverse, T, simd<T>>(how, rank, dim, line_count, blocks);
  else transform_lines_by<IsInverse, T, T>(how, rank, dim, line_count, blocks);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
