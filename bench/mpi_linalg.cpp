// SPDX-License-Identifier: Apache-2.0
// One matrix of doubles, [2048, 2048], over a grid of devices: its Cholesky factor, and a solve by elimination for one
// column. Compared with ScaLAPACK's pdpotrf and pdgesv on the same processes, with the same blocks and BLAS, and with
// one thread of LAPACK; interleaved. Medians of the time of the slowest rank, with the middle half of the ratios.
// Matrices are distributed before. gspmd does not change its matrices. ScaLAPACK overwrites its matrices, so they are
// copied.
//
//   mpi_linalg [rounds, 9]                on two threads, compared with LAPACK
//   mpirun -n 2 mpi_linalg [rounds, 9]    on a grid of 2 x 1
#include "gspmd/mpi.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/comm/threads.hpp"
#include "gspmd/detail/kernels/blas_threads.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/linalg/block_cyclic.hpp"
#include "race_over_mpi.hpp"
#include "scalapack.hpp"

extern "C" {
void dpotrf_(const char* triangle, const int* n, double* a, const int* lda, int* info);
void dgesv_(const int* n, const int* k, double* a, const int* lda, int* pivots, double* b, const int* ldb, int* info);
void pdpotrf_(const char* triangle, const int* n, double* a, const int* ia, const int* ja, const int* desca, int* info);
void pdgesv_(const int* n, const int* k, double* a, const int* ia, const int* ja, const int* desca, int* pivots, double* b,
             const int* ib, const int* jb, const int* descb, int* info);
}

namespace {

using namespace gspmd;
using std::int64_t;
using numbers = std::vector<double>;

constexpr int64_t n = 2048, block = 64;

/// Returns an element of a symmetric, positive definite matrix, or of any matrix.
double positive_at(int64_t i, int64_t j) {
  return (i == j ? static_cast<double>(n) : 0) + std::cos(static_cast<double>(3 * (i + j)));
}
double general_at(int64_t i, int64_t j) { return std::sin(static_cast<double>(i * i % 1009 + 7 * j * j % 2003 + 3 * i * j)); }
double side_at(int64_t i) { return std::cos(static_cast<double>(i)); }

constexpr matrix_grid grid{.rows = "x", .cols = "y", .block = block};
constexpr auto factor = [](auto t) { return block_cyclic_cholesky(t, grid); };
constexpr auto system_of = [](auto t, auto b) { return block_cyclic_solve(t, b, grid); };
template <int R, int C>
using grid_of = mesh<axis<"x", R>, axis<"y", C>>;
template <int R, int C>
using blocks_of = input<double, shape<R, C, n / R, n / C>, split<"x", "y", _, _>>;

/// The blocks of device (r, c), row-major.
template <class F>
numbers local_block(int rows, int columns, int r, int c, F element) {
  const int64_t p = n / rows, q = n / columns;
  numbers x(static_cast<std::size_t>(p * q));
  for (int64_t i = 0; i < p; ++i)
    for (int64_t j = 0; j < q; ++j)
      x[static_cast<std::size_t>(i * q + j)] =
          element((i / block * rows + r) * block + i % block, (j / block * columns + c) * block + j % block);
  return x;
}
/// The whole matrices, on one thread.
class lapack {
 public:
  lapack() : a_(n * n), b_(n), pivots_(n) {
    for (const bool is_general : {false, true})
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j)
          (is_general ? general_ : positive_).push_back(is_general ? general_at(j, i) : positive_at(j, i));
  }
  void factor() {
    a_ = positive_;
    dpotrf_("L", &size_, a_.data(), &size_, &info_);
  }
  void solve() {
    a_ = general_;
    for (int64_t i = 0; i < n; ++i) b_[static_cast<std::size_t>(i)] = side_at(i);
    dgesv_(&size_, &one_, a_.data(), &size_, pivots_.data(), b_.data(), &size_, &info_);
  }
  [[nodiscard]] const numbers& x() const { return b_; }
  [[nodiscard]] double of_factor(int64_t i, int64_t j) const { return a_[static_cast<std::size_t>(j * n + i)]; }

 private:
  numbers positive_, general_, a_, b_;
  std::vector<int> pivots_;
  int size_ = n, one_ = 1, info_ = 0;
};
/// ScaLAPACK's matrices, on all processes.
class over_processes {
 public:
  over_processes(int rows, int columns)
      : grid_(rows, columns),
        a_(grid_, size_, size_, block),
        b_(grid_, size_, 1, block),
        pivots_(static_cast<std::size_t>(n + block)) {
    a_.fill(positive_at);
    positive_ = a_.local;
    a_.fill(general_at);
    general_ = a_.local;
  }
  void factor() {
    a_.local = positive_;
    pdpotrf_("L", &size_, a_.local.data(), &one_, &one_, a_.desc.data(), &info_);
  }
  void solve() {
    a_.local = general_;
    b_.fill([](int64_t i, int64_t) { return side_at(i); });
    pdgesv_(&size_, &one_, a_.local.data(), &one_, &one_, a_.desc.data(), pivots_.data(), b_.local.data(), &one_, &one_,
            b_.desc.data(), &info_);
  }
  /// Returns the largest difference between x and the result of solve(), on this process.
  double far_from(const numbers& x) {
    double worst = 0;
    b_.for_each(
        [&](double own, int64_t i, int64_t) { worst = std::max(worst, std::fabs(own - x[static_cast<std::size_t>(i)])); });
    return worst;
  }

 private:
  static constexpr int size_ = n, one_ = 1;
  bench::scalapack_grid grid_;
  bench::scalapack_matrix a_, b_;
  numbers positive_, general_;
  std::vector<int> pivots_;
  int info_ = 0;
};

void check(bool is_right, const char* what) {
  if (is_right) return;
  std::fprintf(stderr, "WRONG: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// The steps of a device of a grid, and the device's blocks.
template <int R, int C>
struct device {
  int r, c;
  compile<factor, grid_of<R, C>, blocks_of<R, C>> factored;
  compile<system_of, grid_of<R, C>, blocks_of<R, C>, input<double, shape<n, 1>, split<_, _>>> solved;
  numbers positive, general, sides, l, x;

  explicit device(int number)
      : r(number / C),
        c(number % C),
        positive(local_block(R, C, r, c, positive_at)),
        general(local_block(R, C, r, c, general_at)),
        sides(n),
        l(positive.size()),
        x(n) {
    for (int64_t i = 0; i < n; ++i) sides[static_cast<std::size_t>(i)] = side_at(i);
  }
  /// Returns true if this device's part of l equals LAPACK's.
  [[nodiscard]] bool has(const lapack& whole) const {
    double worst = 0;
    const numbers of_lapack = local_block(R, C, r, c, [&](int64_t i, int64_t j) { return j > i ? 0 : whole.of_factor(i, j); });
    for (std::size_t e = 0; e < l.size(); ++e) worst = std::max(worst, std::fabs(l[e] - of_lapack[e]));
    return worst < 1e-9;
  }
};
double far_apart(const numbers& x, const numbers& y) {
  double worst = 0, size = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, std::fabs(x[i] - y[i]));
    size = std::max(size, std::fabs(y[i]));
  }
  return worst / size;
}

template <int R, int C>
void race_over_processes(int rounds) {
  using result_of_solve = typename decltype(device<R, C>::solved)::template output_shard<0>;
  static_assert(result_of_solve::local_elems == n, "x is whole on every device");
  launch(mpi{MPI_COMM_WORLD}, R * C, [&](auto& comm) {
    device<R, C> own(comm.device(0));
    lapack alone;
    over_processes others(R, C);
    const auto factor_it = [&] { own.factored(comm, own.positive, own.l); };
    const auto solve_it = [&] { own.solved(comm, own.general, own.sides, own.x); };
    factor_it();
    alone.factor();
    check(own.has(alone), "a factor is not LAPACK's");
    solve_it();
    alone.solve();
    others.solve();
    check(far_apart(own.x, alone.x()) < 1e-6 && others.far_from(own.x) < 1e-6, "a solution is not LAPACK's");
    const auto of_first = [&](auto f) {
      return [&, f] {
        if (comm.device(0) == 0) f();
      };
    };
    bench::race_over_mpi("block_cyclic_cholesky [2048, 2048], MPI", rounds, 1.05, "pdpotrf", factor_it, [&] { others.factor(); });
    bench::race_over_mpi("block_cyclic_cholesky [2048, 2048], MPI", rounds, 1.05, "dpotrf, one thread", factor_it,
                         of_first([&] { alone.factor(); }));
    bench::race_over_mpi("block_cyclic_solve [2048, 2048], MPI", rounds, 1.05, "pdgesv", solve_it, [&] { others.solve(); });
    bench::race_over_mpi("block_cyclic_solve [2048, 2048], MPI", rounds, 1.05, "dgesv, one thread", solve_it,
                         of_first([&] { alone.solve(); }));
    if (comm.device(0) == 0) bench::all_targets.print();
  });
}
/// Measures two threads from barrier to barrier.
void race_on_threads(int rounds) {
  bench::race_times of_factor, of_solve;
  lapack alone;
  launch(threads{}, 2, [&](auto& comm) {
    const bool is_first = comm.device(0) == 0;
    device<2, 1> own(comm.device(0));
    const auto timed = [&](auto f) {
      comm.barrier();
      const double start = bench::now_ms();
      f();
      comm.barrier();
      return bench::now_ms() - start;
    };
    for (int round = -2; round < rounds; ++round) {
      const double factored = timed([&] { own.factored(comm, own.positive, own.l); });
      const double by_lapack = timed([&] {
        if (is_first) alone.factor();
      });
      if (round == -2) check(own.has(alone), "a factor is not LAPACK's");
      const double solved = timed([&] { own.solved(comm, own.general, own.sides, own.x); });
      const double solved_by_lapack = timed([&] {
        if (is_first) alone.solve();
      });
      if (round == -2) check(far_apart(own.x, alone.x()) < 1e-6, "a solution is not LAPACK's");
      if (round < 0 || !is_first) continue;
      of_factor.add(factored, by_lapack);
      of_solve.add(solved, solved_by_lapack);
    }
  });
  of_factor.print("block_cyclic_cholesky [2048, 2048], threads", 1.05, "dpotrf, one thread");
  of_solve.print("block_cyclic_solve [2048, 2048], threads", 1.05, "dgesv, one thread");
  bench::all_targets.print();
}

}  // namespace

int main(int argc, char** argv) {
  int given = 0, processes = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  const detail::single_threaded_blas one_thread;
  if (processes == 1) race_on_threads(rounds);
  else if (processes == 2) race_over_processes<2, 1>(rounds);
  else std::fprintf(stderr, "mpi_linalg: for 1 or 2 processes\n");
  MPI_Finalize();
  return processes <= 2 ? 0 : 2;
}
