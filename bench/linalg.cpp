// SPDX-License-Identifier: Apache-2.0
// Factors, systems and eigenvalues of many matrices on one device, one thread. Compared with LAPACK, one matrix after
// another, if the BLAS library contains it (OpenBLAS does). LAPACK gets its matrices in its own layout. Medians of
// processor time, and the median and middle half of the ratios of neighbouring runs. 2^20 elements of matrices, or a
// single matrix.
//
//   linalg [rounds, 15] [words in the names of rows]
#include <gspmd/gspmd.hpp>
#include <gspmd/linalg/eigh.hpp>
#include <gspmd/linalg/solve.hpp>
#include <gspmd/linalg/tridiagonal.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "race.hpp"

// LAPACK's matrices are column-major: its upper triangle is our lower triangle, and its system is our system with the
// transposed matrix.
extern "C" {
[[gnu::weak]] void dpotrf_(const char* triangle, const int* n, double* a, const int* lda, int* info);
[[gnu::weak]] void dtrsm_(const char*, const char*, const char*, const char*, const int* m, const int* n, const double* alpha,
                          const double* a, const int* lda, double* b, const int* ldb);
[[gnu::weak]] void dgesv_(const int* n, const int* k, double* a, const int* lda, int* pivots, double* b, const int* ldb,
                          int* info);
[[gnu::weak]] void dsyev_(const char* vectors, const char* triangle, const int* n, double* a, const int* lda, double* w,
                          double* work, const int* size, int* info);
[[gnu::weak]] void dgtsv_(const int* n, const int* k, double* lower, double* diagonal, double* upper, double* b, const int* ldb,
                          int* info);
[[gnu::weak]] void openblas_set_num_threads(int);
}

namespace bench {
namespace {

using namespace gspmd;
using std::int64_t;
using numbers = std::vector<double>;

struct options {
  int rounds;
  const char* words;
};

/// Times a step of some inputs with one or two results. `by_lapack(matrix number)` also computes the last result, up to
/// a sign.
template <class Step, class Lapack>
void compare(const std::string& row, const options& o, const std::vector<numbers>& in, std::vector<numbers> results,
             int64_t count, const numbers& wanted, Lapack by_lapack) {
  if (row.find(o.words) == std::string::npos) return;
  launch(serial{}, 1, [&](auto& comm) {
    Step step;
    const auto ours = [&] {
      if constexpr (Step::input_count == 1 && Step::output_count == 2) step(comm, in[0], results[0], results[1]);
      else if constexpr (Step::input_count == 1) step(comm, in[0], results[0]);
      else if constexpr (Step::input_count == 2) step(comm, in[0], in[1], results[0]);
      else step(comm, in[0], in[1], in[2], in[3], results[0]);
    };
    const auto others = [&] {
      for (int64_t m = 0; m < count; ++m) by_lapack(m);
    };
    ours();
    others();
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (!(std::fabs(std::fabs(results[0][i]) - std::fabs(wanted[i])) <= 1e-8 * (1 + std::fabs(wanted[i])))) {
        std::printf("WRONG: %s: element %zu is %g, by LAPACK %g\n", row.c_str(), i, results[0][i], wanted[i]);
        std::exit(1);
      }
    race_in_turns(o.rounds, ours, others, [&] { comm.barrier(); }).print(row, 1.05, "LAPACK");
  });
}
numbers drawn(int64_t count) {
  numbers x(static_cast<std::size_t>(count));
  std::uint32_t s = 7;
  for (auto& e : x) e = static_cast<double>((s = s * 1664525U + 1013904223U) >> 8U) / 16777216.0 - 0.5;
  return x;
}

template <int64_t N>
void compare_all(const options& o) {
  constexpr int64_t count = std::max<int64_t>(1, (1 << 20) / (N * N));
  constexpr int n = static_cast<int>(N), one_column = 1;
  constexpr auto elems = count * N * N;
  using alone = mesh<axis<"x", 1>>;
  using matrices = input<double, shape<count, N, N>>;
  using columns = input<double, shape<count, N, 1>>;
  const std::string size = " [" + std::to_string(count) + ", " + std::to_string(N) + ", " + std::to_string(N) + "]";
  numbers a = drawn(elems);
  for (int64_t m = 0; m < count; ++m)
    for (int64_t i = 0; i < N; ++i) {
      for (int64_t j = 0; j < i; ++j)
        a[static_cast<std::size_t>((m * N + j) * N + i)] = a[static_cast<std::size_t>((m * N + i) * N + j)];
      a[static_cast<std::size_t>((m * N + i) * N + i)] += static_cast<double>(N);
    }
  const numbers b = drawn(elems), b_column = drawn(count * N);
  numbers factor(a.size()), found(a.size());
  std::vector<int> pivots(static_cast<std::size_t>(N));
  int info = 0;
  const auto at = [](numbers& x, int64_t place) { return x.data() + place; };
  const auto copied = [](const numbers& from, numbers& to, int64_t place, int64_t many) {
    std::copy_n(from.data() + place, many, to.data() + place);
  };
  {  // the lower triangle of LAPACK's result still has the input
    numbers wanted;
    compare<compile<[](auto x) { return cholesky(x); }, alone, matrices>>("cholesky" + size, o, {a}, {numbers(a.size())}, count,
                                                                          wanted, [&](int64_t m) {
                                                                            copied(a, factor, m * N * N, N * N);
                                                                            dpotrf_("U", &n, at(factor, m * N * N), &n, &info);
                                                                          });
  }
  for (int64_t m = 0; m < count; ++m) {
    copied(a, factor, m * N * N, N * N);
    dpotrf_("U", &n, at(factor, m * N * N), &n, &info);
  }
  const double unit = 1;
  compare<compile<[](auto l, auto x) { return triangular_solve(l, x); }, alone, matrices, matrices>>(
      "triangular_solve, n columns" + size, o, {factor, b}, {numbers(a.size())}, count, found, [&](int64_t m) {
        copied(b, found, m * N * N, N * N);
        dtrsm_("R", "U", "N", "N", &n, &n, &unit, at(factor, m * N * N), &n, at(found, m * N * N), &n);
      });
  // In LAPACK's layout, the columns are consecutive. Each system is symmetric.
  numbers copy(a.size());
  numbers x(b_column.size());
  compare<compile<[](auto l, auto s) { return solve(l, s); }, alone, matrices, columns>>(
      "solve, one column" + size, o, {a, b_column}, {numbers(x.size())}, count, x, [&](int64_t m) {
        copied(a, copy, m * N * N, N * N);
        copied(b_column, x, m * N, N);
        dgesv_(&n, &one_column, at(copy, m * N * N), &n, pivots.data(), at(x, m * N), &n, &info);
      });
  compare<compile<[](auto l, auto s) { return solve(l, s); }, alone, matrices, matrices>>(
      "solve, n columns" + size, o, {a, b}, {numbers(a.size())}, count, {}, [&](int64_t m) {
        copied(a, copy, m * N * N, N * N);
        copied(b, found, m * N * N, N * N);
        dgesv_(&n, &n, at(copy, m * N * N), &n, pivots.data(), at(found, m * N * N), &n, &info);
      });
  if constexpr (N <= 256) {
    numbers w(x.size()), work(static_cast<std::size_t>(64 * N + 100));
    const int work_size = static_cast<int>(work.size());
    compare<compile<[](auto s) { return eigh(s); }, alone, matrices>>(
        "eigh" + size, o, {a}, {numbers(w.size()), numbers(a.size())}, count, w, [&](int64_t m) {
          copied(a, copy, m * N * N, N * N);
          dsyev_("V", "U", &n, at(copy, m * N * N), &n, at(w, m * N), work.data(), &work_size, &info);
        });
  }
}
template <int64_t N>
void compare_tridiagonal(const options& o) {
  constexpr int64_t lines = (1 << 20) / N;
  constexpr int n = static_cast<int>(N), one_column = 1;
  const numbers off = drawn(lines * N), b = drawn(lines * N);
  numbers diagonal = drawn(lines * N);
  for (auto& d : diagonal) d += 2;
  numbers l(diagonal.size()), d(diagonal.size()), u(diagonal.size()), x(diagonal.size());
  int info = 0;
  using lines_of = input<double, shape<lines, N>>;
  const auto all = [](const numbers& from, numbers& to, int64_t m) { std::copy_n(from.data() + m * N, N, to.data() + m * N); };
  compare<compile<[](auto p, auto q, auto r, auto s) { return tridiagonal_solve(p, q, r, s); }, mesh<axis<"x", 1>>, lines_of,
                  lines_of, lines_of, lines_of>>("tridiagonal_solve [" + std::to_string(lines) + ", " + std::to_string(N) + "]",
                                                 o, {off, diagonal, off, b}, {numbers(x.size())}, lines, x, [&](int64_t m) {
                                                   all(off, l, m);
                                                   all(diagonal, d, m);
                                                   all(off, u, m);
                                                   all(b, x, m);
                                                   dgtsv_(&n, &one_column, l.data() + m * N + 1, d.data() + m * N,
                                                          u.data() + m * N, x.data() + m * N, &n, &info);
                                                 });
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::options o{argc > 1 ? std::atoi(argv[1]) : 15, argc > 2 ? argv[2] : ""};
  if (dpotrf_ == nullptr || dtrsm_ == nullptr || dgesv_ == nullptr || dsyev_ == nullptr || dgtsv_ == nullptr) {
    std::puts("linalg: the library of the BLAS has no LAPACK to compare with");
    return 0;
  }
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  bench::compare_all<8>(o);
  bench::compare_all<16>(o);
  bench::compare_all<64>(o);
  bench::compare_all<256>(o);
  bench::compare_all<1024>(o);
  bench::compare_tridiagonal<16>(o);
  bench::compare_tridiagonal<256>(o);
  bench::compare_tridiagonal<4096>(o);
  bench::all_targets.print();
}
