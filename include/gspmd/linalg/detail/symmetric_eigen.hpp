// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "gspmd/detail/support/target.hpp"
#include "gspmd/linalg/detail/matrix_blocks.hpp"
#include "gspmd/linalg/detail/matrix_functions.hpp"

/// Eigenvalues and eigenvectors of symmetric and Hermitian matrices. Householder reflections give a tridiagonal matrix,
/// then QL steps with implicit shifts follow (Golub and Van Loan, 8.3; Bowdler, Martin, Reinsch and Wilkinson 1968, The
/// QR and QL algorithms for symmetric matrices).
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// One matrix, n x n. During the computation vectors are rows of `z`, so that every loop runs along a row.
template <class T>
struct symmetric_eigen {
  using part = part_t<T>;

  std::int64_t n;
  T* a;                // the matrix, later the reflections: reflection k is in row k, to the right of the diagonal
  part* off_diagonal;  // n numbers
  T* p;                // n numbers
  part* values;
  T* z;
  std::int64_t ldz;

  static constexpr part smallest_square =
      std::numeric_limits<part>::min() / std::numeric_limits<part>::epsilon();  // smaller squares are inaccurate
  static constexpr std::int64_t parts = sizeof(T) / sizeof(part);

  /// Returns x^T y.
  static T dot(std::int64_t count, const T* x, const T* y) {
    return sum_of_products(count, x, y, [](T of_x, T of_y) { return of_x * of_y; });
  }
  /// Returns x^H y.
  static T inner_product(std::int64_t count, const T* x, const T* y) {
    return sum_of_products(count, x, y, [](T of_x, T of_y) { return conjugate_of(of_x) * of_y; });
  }
  static part square_of(std::int64_t count, const T* x) { return real_of(inner_product(count, x, x)); }
  template <class Product>
  static T sum_of_products(std::int64_t count, const T* x, const T* y, Product product) {
    constexpr int lanes = 8;  // independent sums, which the compiler can vectorise
    T sum[lanes]{};
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes)
      for (int l = 0; l < lanes; ++l) sum[l] = sum[l] + product(x[i + l], y[i + l]);
    for (int l = 0; i < count; ++i, ++l) sum[l] = sum[l] + product(x[i], y[i]);
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
  }
  static void add_multiple(std::int64_t count, T factor, const T* x, T* y) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = y[i] + factor * x[i];
  }
  static void add_multiple_of_conjugate(std::int64_t count, T factor, const T* x, T* y) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = y[i] + factor * conjugate_of(x[i]);
  }

  /// Returns the length of (x, y). Both are at most about 1. std::hypot would take longer than a rotation of 16
  /// elements.
  static part length_of(part x, part y) {
    const part square = x * x + y * y;
    return square > smallest_square ? std::sqrt(square) : std::hypot(x, y);
  }

  /// Computes the eigenvalues in ascending order, and the eigenvectors as columns of z. Returns false if the matrix has
  /// NaNs or infinities, or if iterate() fails.
  [[nodiscard]] bool run() const {
    part largest = 0;
    part* const all = parts_of(a);
    for (std::int64_t i = 0; i < n * n * parts; ++i) {
      const part size = std::fabs(all[i]);
      if (!(size <= std::numeric_limits<part>::max())) return false;
      largest = largest < size ? size : largest;
    }
    const part scale = largest == 0 ? 1 : largest;  // so that squares neither overflow nor underflow
    for (std::int64_t i = 0; i < n * n * parts; ++i) all[i] /= scale;
    reduce();
    make_reflections();
    if constexpr (is_complex_element<T>) turn_phases();
    if (!iterate()) return false;
    put_in_order();
    for (std::int64_t i = 0; i < n; ++i) values[i] *= scale;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < i; ++j) std::swap(z[i * ldz + j], z[j * ldz + i]);
    return true;
  }

 private:
  static part* parts_of(T* x) { return reinterpret_cast<part*>(x); }

  /// For each column, computes H = 1 - 2 v v^H / v^H v and a = H a H. H makes all elements below the diagonal 0, except
  /// the first one. The column is the conjugate of the row to the right of the diagonal. If the remaining element is
  /// complex, it is stored on the diagonal and its modulus in off_diagonal.
  void reduce() const {
    for (std::int64_t k = 0; k + 1 < n; ++k) {
      values[k] = real_of(a[k * n + k]);
      T* const v = a + k * n + k + 1;
      const std::int64_t rest = n - k - 1;
      if constexpr (is_complex_element<T>)
        for (std::int64_t i = 0; i < rest; ++i) v[i] = conjugate_of(v[i]);
      const part norm = std::sqrt(square_of(rest, v)), behind = rest > 1 ? square_of(rest - 1, v + 1) : 0;
      if (behind <= smallest_square) {  // the other elements are negligible, since elements have a size of about 1, and H is 1
        keep_off_diagonal(k, v[0]);
        v[0] = T(0);
        continue;
      }
      const T left = opposite(v[0], norm);
      keep_off_diagonal(k, left);
      v[0] = v[0] - left;
      const part length = std::sqrt(2 / (square_of(1, v) + behind));  // then H = 1 - v v^H
      for (std::int64_t i = 0; i < rest * parts; ++i) parts_of(v)[i] *= length;
      T* const below = a + (k + 1) * n + k + 1;
      for (std::int64_t i = 0; i < rest; ++i) p[i] = dot(rest, below + i * n, v);
      add_multiple(rest, T(-real_of(inner_product(rest, v, p)) / 2), v, p);
      for (std::int64_t i = 0; i < rest; ++i) {
        add_multiple_of_conjugate(rest, -v[i], p, below + i * n);
        add_multiple_of_conjugate(rest, -p[i], v, below + i * n);
      }
    }
    values[n - 1] = real_of(a[n * n - 1]);
    off_diagonal[n - 1] = 0;
  }
  void keep_off_diagonal(std::int64_t k, T x) const {
    if constexpr (is_complex_element<T>) {
      a[k * n + k] = x;
      off_diagonal[k] = modulus(x);
    } else {
      off_diagonal[k] = x;
    }
  }
  /// Returns a number of modulus `norm` that is far from x.
  static T opposite(T x, part norm) {
    if constexpr (is_complex_element<T>) {
      const part size = modulus(x);
      return size == 0 ? T(norm) : T{-(x.re / size) * norm, -(x.im / size) * norm};
    } else {
      return x > 0 ? -norm : norm;
    }
  }
  /// The tridiagonal matrix is D s D^H with a real s, where the diagonal elements of D have modulus 1. Multiplies the
  /// vectors by D.
  void turn_phases() const {
    T phase(1);
    for (std::int64_t k = 0; k + 1 < n; ++k) {
      if (off_diagonal[k] > 0) phase = phase * divided(a[k * n + k], off_diagonal[k]);
      T* const row = z + (k + 1) * ldz;
      for (std::int64_t i = 0; i < n; ++i) row[i] = row[i] * phase;
    }
  }
  /// Computes z = the transposed product of the reflections, from the last one to the first.
  void make_reflections() const {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) z[i * ldz + j] = T(i == j ? 1 : 0);
    for (std::int64_t k = n - 2; k >= 0; --k) {
      const T* const v = a + k * n + k + 1;
      const std::int64_t rest = n - k - 1;
      for (std::int64_t i = k + 1; i < n; ++i) {
        T* const row = z + i * ldz + k + 1;
        add_multiple(rest, -inner_product(rest, v, row), v, row);
      }
    }
  }
  /// Returns false if an eigenvalue is not found in 2 * most_steps steps. most_steps is LAPACK's limit per eigenvalue.
  [[nodiscard]] bool iterate() const {
    constexpr int most_steps = 30;
    part *const d = values, *const e = off_diagonal;
    for (std::int64_t l = 0; l < n; ++l)
      for (int step = 0;; ++step) {
        std::int64_t m = l;
        while (m + 1 < n && !is_negligible(e[m], d[m], d[m + 1])) ++m;
        if (m == l) break;
        if (step == most_steps * 2) return false;
        const part half = (d[l + 1] - d[l]) / (2 * e[l]), root = std::hypot(half, part(1));
        part g = d[m] - d[l] + e[l] / (half + std::copysign(root, half));  // the shift
        part sine = 1, cosine = 1, moved = 0;
        std::int64_t i = m - 1;
        for (; i >= l; --i) {
          const part f = sine * e[i], b = cosine * e[i], r = length_of(f, g);
          e[i + 1] = r;
          if (r == 0) {  // the matrix splits into two
            d[i + 1] -= moved;
            e[m] = 0;
            break;
          }
          sine = f / r;
          cosine = g / r;
          g = d[i + 1] - moved;
          const part turned = (d[i] - g) * sine + 2 * cosine * b;
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
  /// Returns true if the element between d and next is negligible. The largest element of the matrix is about 1, so an
  /// element is also negligible if all three are rounding errors.
  static bool is_negligible(part beside, part d, part next) {
    constexpr part epsilon = std::numeric_limits<part>::epsilon();
    return std::fabs(beside) <= epsilon / 2 * (std::fabs(d) + std::fabs(next)) || std::fabs(beside) <= epsilon * epsilon;
  }
  void rotate(T* of_x, T* of_y, part cosine, part sine) const {
    part *const x = parts_of(of_x), *const y = parts_of(of_y);
    for (std::int64_t k = 0; k < n * parts; ++k) {
      const part old = y[k];
      y[k] = sine * x[k] + cosine * old;
      x[k] = cosine * x[k] - sine * old;
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
  using part = part_t<T>;
  for_each_matrix<T, T, part>(rank, blocks, [&](const T* a, T* v, part* w) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) own[i * n + j] = a[i * from + j];
    if (symmetric_eigen<T>{n, own, reinterpret_cast<part*>(own + n * n), own + n * (n + 1), w, v, to}.run()) return;
    fill_rows(n, n, std::numeric_limits<part>::quiet_NaN(), v, to);
    fill_rows(1, n, std::numeric_limits<part>::quiet_NaN(), w, n);
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
