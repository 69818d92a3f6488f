// SPDX-License-Identifier: Apache-2.0
// NPB's MG and FT, hand-written with MPI. MG: slabs of the first dim, ghost planes, and sums of rows that are kept while a row is
// computed. FT: Stockham's transforms of blocks of lines, and an all_to_all. The same as mg.f90 and ft.f90 of NPB 3.4.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

/// A periodic cube of n^3 points. A rank has n / ranks planes, with a ghost layer around each dim.
class mg_field {
 public:
  mg_field(int n, int ranks, int rank)
      : n_(n),
        planes_(n / ranks),
        before_((rank + ranks - 1) % ranks),
        after_((rank + 1) % ranks),
        ranks_(ranks),
        all_(static_cast<std::size_t>(planes_ + 2) * row() * row()) {}

  [[nodiscard]] int n() const { return n_; }
  [[nodiscard]] int planes() const { return planes_; }
  /// Returns element -1 of row (k, j). Planes and rows count from 0; the ghosts are -1 and n.
  [[nodiscard]] double* line(int k, int j) {
    return all_.data() + (static_cast<std::size_t>(k + 1) * row() + static_cast<std::size_t>(j + 1)) * row();
  }
  [[nodiscard]] const double* line(int k, int j) const { return const_cast<mg_field*>(this)->line(k, j); }

  void fill_ghosts() {
    for (int k = 0; k < planes_; ++k) {
      for (int j = 0; j < n_; ++j) {
        double* const x = line(k, j);
        x[0] = x[n_];
        x[n_ + 1] = x[1];
      }
      std::copy_n(line(k, n_ - 1), row(), line(k, -1));
      std::copy_n(line(k, 0), row(), line(k, n_));
    }
    const std::size_t plane = row() * row();
    if (ranks_ == 1) {
      std::copy_n(line(planes_ - 1, -1), plane, line(-1, -1));
      std::copy_n(line(0, -1), plane, line(planes_, -1));
      return;
    }
    const int count = static_cast<int>(plane);
    MPI_Sendrecv(line(planes_ - 1, -1), count, MPI_DOUBLE, after_, 0, line(-1, -1), count, MPI_DOUBLE, before_, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(line(0, -1), count, MPI_DOUBLE, before_, 1, line(planes_, -1), count, MPI_DOUBLE, after_, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  }
  void fill(double x) { std::fill(all_.begin(), all_.end(), x); }

 private:
  int n_, planes_, before_, after_, ranks_;
  std::vector<double> all_;

  [[nodiscard]] std::size_t row() const { return static_cast<std::size_t>(n_ + 2); }
};

/// V-cycles of examples/npb/mg.hpp.
class mg_by_hand {
 public:
  mg_by_hand(int n, int ranks, int rank) : v_(n, ranks, rank), whole_(n, ranks, rank) {
    for (int m = n; m >= 2; m /= 2) {
      r_.emplace_back(m, ranks, rank);
      u_.emplace_back(m, ranks, rank);
    }
    for (auto* row : {&faces_, &edges_}) row->resize(static_cast<std::size_t>(n + 2));
  }
  /// Returns the root of the mean square of the residual. `charges`: this rank's planes of v.
  double run(const double* charges, int cycles) {
    const int n = v_.n();
    for (int k = 0; k < v_.planes(); ++k)
      for (int j = 0; j < n; ++j)
        std::copy_n(charges + (static_cast<std::size_t>(k) * static_cast<std::size_t>(n) + static_cast<std::size_t>(j)) *
                                  static_cast<std::size_t>(n),
                    n, v_.line(k, j) + 1);
    v_.fill_ghosts();
    whole_.fill(0);
    r_[0] = v_;
    for (int c = 0; c < cycles; ++c) {
      cycle();
      for (int k = 0; k < v_.planes(); ++k)
        for (int j = 0; j < n; ++j)
          for (int i = 1; i <= n; ++i) whole_.line(k, j)[i] += u_[0].line(k, j)[i];
      whole_.fill_ghosts();
      subtract_operator(whole_, v_, r_[0]);
    }
    double sum = 0;
    for (int k = 0; k < v_.planes(); ++k)
      for (int j = 0; j < n; ++j)
        for (int i = 1; i <= n; ++i) sum += r_[0].line(k, j)[i] * r_[0].line(k, j)[i];
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return std::sqrt(sum / (static_cast<double>(n) * n * n));
  }

 private:
  mg_field v_, whole_;
  std::vector<mg_field> r_, u_;  // from the finest level
  std::vector<double> faces_, edges_;

  /// Computes an approximate solution u[0] of A u = r[0].
  void cycle() {
    const std::size_t last = r_.size() - 1;
    for (std::size_t level = 0; level < last; ++level) restrict_to(r_[level], r_[level + 1]);
    u_[last].fill(0);
    smooth(r_[last], u_[last]);
    for (std::size_t level = last; level-- > 0;) {
      prolong(u_[level + 1], u_[level]);
      subtract_operator(u_[level], r_[level], rest_of(level));
      smooth(rest_of(level), u_[level]);
    }
  }
  /// Memory for a residual that is read once. The residual of the finest level is recomputed after the cycle.
  mg_field& rest_of(std::size_t level) { return r_[level]; }

  /// Computes, for each element, the sums of the neighbours along one of the outer dims, and along both.
  void sum_around(const mg_field& x, int k, int j) {
    const double *const a = x.line(k, j - 1), *const b = x.line(k, j + 1), *const c = x.line(k - 1, j),
                        *const d = x.line(k + 1, j);
    const double *const e = x.line(k - 1, j - 1), *const f = x.line(k - 1, j + 1), *const g = x.line(k + 1, j - 1),
                        *const h = x.line(k + 1, j + 1);
    double *const faces = faces_.data(), *const edges = edges_.data();
    for (int i = 0; i < x.n() + 2; ++i) {
      faces[i] = a[i] + b[i] + c[i] + d[i];
      edges[i] = e[i] + f[i] + g[i] + h[i];
    }
  }
  /// Computes r = v - A u. r may be v.
  void subtract_operator(const mg_field& u, const mg_field& v, mg_field& r) {
    for (int k = 0; k < u.planes(); ++k)
      for (int j = 0; j < u.n(); ++j) {
        sum_around(u, k, j);
        const double *const of_u = u.line(k, j), *const of_v = v.line(k, j), *const faces = faces_.data(),
                            *const edges = edges_.data();
        double* const to = r.line(k, j);
        for (int i = 1; i <= u.n(); ++i)
          to[i] = of_v[i] + 8.0 / 3 * of_u[i] - 1.0 / 6 * (edges[i] + faces[i - 1] + faces[i + 1]) -
                  1.0 / 12 * (edges[i - 1] + edges[i + 1]);
      }
    r.fill_ghosts();
  }
  /// Computes u += S r.
  void smooth(const mg_field& r, mg_field& u) {
    for (int k = 0; k < u.planes(); ++k)
      for (int j = 0; j < u.n(); ++j) {
        sum_around(r, k, j);
        const double *const x = r.line(k, j), *const faces = faces_.data(), *const edges = edges_.data();
        double* const to = u.line(k, j);
        for (int i = 1; i <= u.n(); ++i)
          to[i] +=
              -3.0 / 8 * x[i] + 1.0 / 32 * (x[i - 1] + x[i + 1] + faces[i]) - 1.0 / 64 * (edges[i] + faces[i - 1] + faces[i + 1]);
      }
    u.fill_ghosts();
  }
  /// Computes weighted means of 27 points around the odd points.
  void restrict_to(const mg_field& fine, mg_field& coarse) {
    for (int k = 0; k < coarse.planes(); ++k)
      for (int j = 0; j < coarse.n(); ++j) {
        sum_around(fine, 2 * k + 1, 2 * j + 1);
        const double *const x = fine.line(2 * k + 1, 2 * j + 1), *const faces = faces_.data(), *const edges = edges_.data();
        double* const to = coarse.line(k, j);
        for (int c = 1; c <= coarse.n(); ++c) {
          const int i = 2 * c;
          to[c] = 0.5 * x[i] + 0.25 * (x[i - 1] + x[i + 1] + faces[i]) + 0.125 * (edges[i] + faces[i - 1] + faces[i + 1]) +
                  0.0625 * (edges[i - 1] + edges[i + 1]);
        }
      }
    coarse.fill_ghosts();
  }
  /// Trilinear interpolation. The points of the coarse grid are the odd points of the fine grid.
  void prolong(const mg_field& coarse, mg_field& fine) {
    for (int k = 0; k < fine.planes(); ++k)
      for (int j = 0; j < fine.n(); ++j) {
        const int k1 = k / 2, k0 = k % 2 == 0 ? k1 - 1 : k1, j1 = j / 2, j0 = j % 2 == 0 ? j1 - 1 : j1;
        const double *const a = coarse.line(k0, j0), *const b = coarse.line(k0, j1), *const c = coarse.line(k1, j0),
                            *const d = coarse.line(k1, j1);
        double *const mean = faces_.data(), *const to = fine.line(k, j);
        for (int i = 0; i < coarse.n() + 2; ++i) mean[i] = 0.25 * (a[i] + b[i] + c[i] + d[i]);
        for (int i = 0; i < coarse.n(); ++i) {
          to[1 + 2 * i] = 0.5 * (mean[i] + mean[i + 1]);
          to[2 + 2 * i] = mean[i + 1];
        }
      }
    fine.fill_ghosts();
  }
};

/// Transforms of `width` adjacent lines of n numbers, for n a power of two. Element k of the lines is row k of `width` numbers.
class stockham_lines {
 public:
  using number = std::complex<double>;
  static constexpr int width = 16;

  explicit stockham_lines(int n)
      : n_(n),
        roots_(static_cast<std::size_t>(n / 2)),
        other_(static_cast<std::size_t>(n * width)),
        block(static_cast<std::size_t>(n * width)) {
    for (int k = 0; k < n / 2; ++k) roots_[static_cast<std::size_t>(k)] = std::polar(1.0, -2 * std::acos(-1.0) * k / n);
  }

 private:
  int n_;
  std::vector<number> roots_, other_;

 public:
  std::vector<number> block;

  void transform(bool is_inverse) {
    const double turn = is_inverse ? -1 : 1;
    for (int half = n_ / 2, stride = 1; half >= 1; half /= 2, stride *= 2) {
      const auto* const from = reinterpret_cast<const double*>(block.data());
      auto* const to = reinterpret_cast<double*>(other_.data());
      for (int p = 0; p < half; ++p) {
        const double re = roots_[static_cast<std::size_t>(p * stride)].real(),
                     im = turn * roots_[static_cast<std::size_t>(p * stride)].imag();
        const double *const x = from + 2 * width * stride * p, *const y = from + 2 * width * stride * (p + half);
        double *const sums = to + 2 * width * stride * 2 * p, *const rest = to + 2 * width * stride * (2 * p + 1);
        for (int l = 0; l < 2 * width * stride; l += 2) {
          const double d = x[l] - y[l], e = x[l + 1] - y[l + 1];
          sums[l] = x[l] + y[l];
          sums[l + 1] = x[l + 1] + y[l + 1];
          rest[l] = d * re - e * im;
          rest[l + 1] = d * im + e * re;
        }
      }
      block.swap(other_);
    }
  }
};

/// examples/npb/ft.hpp: [z, y, x]. z is split while u is in space, y while u is in frequencies.
class ft_by_hand {
 public:
  using number = std::complex<double>;

  ft_by_hand(int nz, int ny, int nx, int ranks, int rank)
      : nz_(nz),
        ny_(ny),
        nx_(nx),
        ranks_(ranks),
        rank_(rank),
        along_x_(nx),
        along_y_(ny),
        along_z_(nz),
        space_(static_cast<std::size_t>(nz / ranks * ny * nx)),
        packed_(space_.size()),
        frequencies_(space_.size()),
        now_(space_.size()),
        decay_(space_.size()) {}

  /// Computes the sums at each time. `initial(z, y, x)`: u.
  template <class Initial, std::size_t Times>
  void run(Initial initial, std::array<number, Times>& sums) {
    const int planes = nz_ / ranks_, rows = ny_ / ranks_;
    initial(space_.data());
    const auto squared = [](int k, int n) { return static_cast<double>((k >= n / 2 ? k - n : k) * (k >= n / 2 ? k - n : k)); };
    const double factor = -4e-6 * std::acos(-1.0) * std::acos(-1.0);
    std::size_t at = 0;
    for (int z = 0; z < nz_; ++z)
      for (int y = 0; y < rows; ++y)
        for (int x = 0; x < nx_; ++x)
          decay_[at++] = std::exp(factor * (squared(z, nz_) + squared(rank_ * rows + y, ny_) + squared(x, nx_)));
    for (int z = 0; z < planes; ++z) {
      number* const plane = space_.data() + z * ny_ * nx_;
      rows_of_lines(along_x_, plane, ny_, nx_, 1, nx_, false);
      rows_of_lines(along_y_, plane, nx_, 1, nx_, ny_, false);
    }
    // Sends rows of y to their rank.
    for (int r = 0; r < ranks_; ++r)
      for (int z = 0; z < planes; ++z)
        std::copy_n(space_.data() + (z * ny_ + r * rows) * nx_, rows * nx_, packed_.data() + (r * planes + z) * rows * nx_);
    exchange(packed_, frequencies_);
    rows_of_lines(along_z_, frequencies_.data(), rows * nx_, 1, rows * nx_, nz_, false);
    for (auto& sum : sums) {
      for (std::size_t i = 0; i < frequencies_.size(); ++i) {
        frequencies_[i] *= decay_[i];
        now_[i] = frequencies_[i];
      }
      rows_of_lines(along_z_, now_.data(), rows * nx_, 1, rows * nx_, nz_, true);
      exchange(now_, packed_);
      for (int r = 0; r < ranks_; ++r)
        for (int z = 0; z < planes; ++z)
          std::copy_n(packed_.data() + (r * planes + z) * rows * nx_, rows * nx_, space_.data() + (z * ny_ + r * rows) * nx_);
      for (int z = 0; z < planes; ++z) {
        number* const plane = space_.data() + z * ny_ * nx_;
        rows_of_lines(along_y_, plane, nx_, 1, nx_, ny_, true);
        rows_of_lines(along_x_, plane, ny_, nx_, 1, nx_, true);
      }
      number mine{};
      for (int j = 1; j <= 1024; ++j)
        if (const int z = 5 * j % nz_; z / planes == rank_)
          mine += space_[static_cast<std::size_t>((z % planes * ny_ + 3 * j % ny_) * nx_ + j % nx_)];
      MPI_Allreduce(MPI_IN_PLACE, &mine, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
      sum = mine / (static_cast<double>(nz_) * ny_ * nx_);
    }
  }

 private:
  int nz_, ny_, nx_, ranks_, rank_;
  stockham_lines along_x_, along_y_, along_z_;
  std::vector<number> space_, packed_, frequencies_, now_;
  std::vector<double> decay_;

  /// `count` lines of n elements. The elements of a line are `step` apart, and the lines are `between` apart.
  static void rows_of_lines(stockham_lines& lines, number* x, int count, int between, int step, int n, bool is_inverse) {
    constexpr int width = stockham_lines::width;
    for (int first = 0; first < count; first += width) {
      number* const from = x + first * between;
      for (int k = 0; k < n; ++k)
        for (int l = 0; l < width; ++l) lines.block[static_cast<std::size_t>(k * width + l)] = from[l * between + k * step];
      lines.transform(is_inverse);
      for (int k = 0; k < n; ++k)
        for (int l = 0; l < width; ++l) from[l * between + k * step] = lines.block[static_cast<std::size_t>(k * width + l)];
    }
  }
  void exchange(const std::vector<number>& from, std::vector<number>& to) const {
    const int count = static_cast<int>(2 * from.size()) / ranks_;
    MPI_Alltoall(from.data(), count, MPI_DOUBLE, to.data(), count, MPI_DOUBLE, MPI_COMM_WORLD);
  }
};

}  // namespace bench
