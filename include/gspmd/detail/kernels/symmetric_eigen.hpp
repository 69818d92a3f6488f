// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "gspmd/detail/ir/matrix_functions.hpp"
#include "gspmd/detail/kernels/matrix_blocks.hpp"
#include "gspmd/detail/support/target.hpp"

/// Eigenvalues and eigenvectors of symmetric matrices: Householder's reflections to a tridiagonal matrix, then QL steps with implicit shifts
/// (Golub and Van Loan, 8.3; Bowdler, Martin, Reinsch and Wilkinson 1968, The QR and QL algorithms for symmetric matrices).
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// One matrix, n x n. Vectors are rows of `z` while they are found, so that every loop goes along a row.
template <class T>
struct symmetric_eigen {
  std::int64_t n;
  T* a;                 // the matrix, then the reflections: that of row k is in it behind the diagonal
  T *off_diagonal, *p;  // n numbers each
  T* values;
  T* z;
  std::int64_t ldz;

  static constexpr T smallest_square = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();  // that is exact

  static T dot(std::int64_t count, const T* x, const T* y) {
    constexpr int lanes = 8;  // sums apart, which the compiler may compute together
    T sum[lanes]{};
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes)
      for (int l = 0; l < lanes; ++l) sum[l] += x[i + l] * y[i + l];
    for (int l = 0; i < count; ++i, ++l) sum[l] += x[i] * y[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
  }
  static void add_multiple(std::int64_t count, T factor, const T* x, T* y) {
    for (std::int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
  }

  /// Of (x, y), which are at most about 1: std::hypot takes longer than a rotation of 16 elements.
  static T length_of(T x, T y) {
    const T square = x * x + y * y;
    return square > smallest_square ? std::sqrt(square) : std::hypot(x, y);
  }

  /// False: there are NaNs or infinities in it.
  [[nodiscard]] bool run() const {
    T largest = 0;
    for (std::int64_t i = 0; i < n * n; ++i) {
      const T size = std::fabs(a[i]);
      if (!(size <= std::numeric_limits<T>::max())) return false;
      largest = largest < size ? size : largest;
    }
    const T scale = largest == 0 ? 1 : largest;  // squares neither overflow nor vanish
    for (std::int64_t i = 0; i < n * n; ++i) a[i] /= scale;
    reduce();
    make_reflections();
    if (!iterate()) return false;
    put_in_order();
    for (std::int64_t i = 0; i < n; ++i) values[i] *= scale;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < i; ++j) std::swap(z[i * ldz + j], z[j * ldz + i]);
    return true;
  }

 private:
  /// H = 1 - 2 v v^T / v^T v for each row, which leaves of what is behind the diagonal its first element alone; a = H a H.
  void reduce() const {
    for (std::int64_t k = 0; k + 1 < n; ++k) {
      values[k] = a[k * n + k];
      T* const v = a + k * n + k + 1;
      const std::int64_t rest = n - k - 1;
      const T norm = std::sqrt(dot(rest, v, v)), behind = rest > 1 ? dot(rest - 1, v + 1, v + 1) : 0;
      if (behind <= smallest_square) {  // it is 0 beside the elements of about 1, and H is 1
        off_diagonal[k] = v[0];
        v[0] = 0;
        continue;
      }
      off_diagonal[k] = v[0] > 0 ? -norm : norm;
      v[0] -= off_diagonal[k];
      const T length = std::sqrt(2 / (v[0] * v[0] + behind));  // then H = 1 - v v^T
      for (std::int64_t i = 0; i < rest; ++i) v[i] *= length;
      T* const below = a + (k + 1) * n + k + 1;
      for (std::int64_t i = 0; i < rest; ++i) p[i] = dot(rest, below + i * n, v);
      add_multiple(rest, -dot(rest, p, v) / 2, v, p);
      for (std::int64_t i = 0; i < rest; ++i) {
        add_multiple(rest, -v[i], p, below + i * n);
        add_multiple(rest, -p[i], v, below + i * n);
      }
    }
    values[n - 1] = a[n * n - 1];
    off_diagonal[n - 1] = 0;
  }
  /// z: the product of the reflections, transposed, from the last one to the first.
  void make_reflections() const {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) z[i * ldz + j] = i == j ? 1 : 0;
    for (std::int64_t k = n - 2; k >= 0; --k) {
      const T* const v = a + k * n + k + 1;
      const std::int64_t rest = n - k - 1;
      for (std::int64_t i = k + 1; i < n; ++i) {
        T* const row = z + i * ldz + k + 1;
        add_multiple(rest, -dot(rest, row, v), v, row);
      }
    }
  }
  /// False: a value is not found in as many steps as LAPACK takes.
  [[nodiscard]] bool iterate() const {
    constexpr int most_steps = 30;
    T *const d = values, *const e = off_diagonal;
    for (std::int64_t l = 0; l < n; ++l)
      for (int step = 0;; ++step) {
        std::int64_t m = l;
        while (m + 1 < n && !is_negligible(e[m], d[m], d[m + 1])) ++m;
        if (m == l) break;
        if (step == most_steps * 2) return false;
        const T half = (d[l + 1] - d[l]) / (2 * e[l]), root = std::hypot(half, T(1));
        T g = d[m] - d[l] + e[l] / (half + std::copysign(root, half));  // the shift
        T sine = 1, cosine = 1, moved = 0;
        std::int64_t i = m - 1;
        for (; i >= l; --i) {
          const T f = sine * e[i], b = cosine * e[i], r = length_of(f, g);
          e[i + 1] = r;
          if (r == 0) {  // it falls into two parts
            d[i + 1] -= moved;
            e[m] = 0;
            break;
          }
          sine = f / r;
          cosine = g / r;
          g = d[i + 1] - moved;
          const T turned = (d[i] - g) * sine + 2 * cosine * b;
          moved = sine * turned;
          d[i + 1] = g + moved;
          g = cosine * turned - b;
          rotate(z + i * ldz, z + (i + 1) * ldz, cosine, sine);
        }
        if (i >= l) continue;
        d[l] -= moved;
        e[l] = g;
        e[m] = 0;
      }
    return true;
  }
  /// Between these values on the diagonal, of a matrix whose largest element is about 1: where all three are rounding errors too.
  static bool is_negligible(T beside, T d, T next) {
    constexpr T epsilon = std::numeric_limits<T>::epsilon();
    return std::fabs(beside) <= epsilon / 2 * (std::fabs(d) + std::fabs(next)) || std::fabs(beside) <= epsilon * epsilon;
  }
  void rotate(T* x, T* y, T cosine, T sine) const {
    for (std::int64_t k = 0; k < n; ++k) {
      const T of_y = y[k];
      y[k] = sine * x[k] + cosine * of_y;
      x[k] = cosine * x[k] - sine * of_y;
    }
  }
  void put_in_order() const {
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t least = i;
      for (std::int64_t j = i + 1; j < n; ++j)
        if (values[j] < values[least]) least = j;
      if (least == i) continue;
      std::swap(values[i], values[least]);
      for (std::int64_t k = 0; k < n; ++k) std::swap(z[i * ldz + k], z[least * ldz + k]);
    }
  }
};

template <class T>
void run_eigh(int rank, const erased_block* blocks) {
  const std::int64_t n = blocks[0].extents[rank - 1], from = blocks[0].strides[rank - 2], to = blocks[1].strides[rank - 2];
  if (n == 0) return;
  T* const own = static_cast<T*>(blocks[3].data);
  for_each_matrix<T, T, T>(rank, blocks, [&](const T* a, T* v, T* w) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) own[i * n + j] = a[i * from + j];
    if (symmetric_eigen<T>{n, own, own + n * n, own + n * (n + 1), w, v, to}.run()) return;
    fill_rows(n, n, std::numeric_limits<T>::quiet_NaN(), v, to);
    fill_rows(1, n, std::numeric_limits<T>::quiet_NaN(), w, n);
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
