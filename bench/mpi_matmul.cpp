// SPDX-License-Identifier: Apache-2.0
// C = A B in doubles on two or four MPI processes, compiled by gspmd, against ScaLAPACK's pdgemm on the same processes with the
// same BLAS, interleaved; A, B and C are spread over all processes in both. pdgemm runs with three block sizes: the ratio is to
// the fastest of them in each round. Medians over the slower rank; all four products must be equal.
//
//   mpirun -n 2 mpi_matmul [rounds, 20]        on a mesh of 2, and a grid of 2 x 1
//   mpirun -n 4 mpi_matmul [rounds, 20]        on a mesh of 2 x 2, and such a grid
#include "gspmd/comm/mpi.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gspmd/detail/kernels/blas_threads.hpp"
#include "gspmd/gspmd.hpp"
#include "race.hpp"

extern "C" {
void Cblacs_get(int context, int what, int* value);
void Cblacs_gridinit(int* context, const char* order, int rows, int columns);
void Cblacs_gridinfo(int context, int* rows, int* columns, int* row, int* column);
void Cblacs_gridexit(int context);
int numroc_(const int* n, const int* block, const int* process, const int* first, const int* processes);
void descinit_(int* desc, const int* m, const int* n, const int* mb, const int* nb, const int* row, const int* column,
               const int* context, const int* leading, int* info);
void pdgemm_(const char* ta, const char* tb, const int* m, const int* n, const int* k, const double* alpha, const double* a,
             const int* ia, const int* ja, const int* desca, const double* b, const int* ib, const int* jb, const int* descb,
             const double* beta, double* c, const int* ic, const int* jc, const int* descc);
}

namespace {

using namespace gspmd;

// Small integers: every sum is exact, in any order.
double a_at(std::int64_t i, std::int64_t j) { return static_cast<double>((3 * i + 5 * j + i * j % 11) % 7 - 3); }
double b_at(std::int64_t j, std::int64_t k) { return static_cast<double>((7 * j + 2 * k + j * k % 13) % 5 - 2); }
double weight(std::int64_t i, std::int64_t k) { return static_cast<double>((i + 3 * k) % 17); }

/// The sum over all processes of the elements of C, weighted by where they stand.
double sum_of_all(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

/// pdgemm's operands and result in square blocks, dealt out over the processes; columns first in memory.
class scalapack_product {
 public:
  scalapack_product(int n, int block, int grid_rows, int grid_columns) : n_(n), block_(block) {
    Cblacs_get(-1, 0, &context_);
    Cblacs_gridinit(&context_, "Row", grid_rows, grid_columns);
    Cblacs_gridinfo(context_, &grid_rows_, &grid_columns_, &row_, &column_);
    const int zero = 0;
    rows_ = numroc_(&n, &block, &row_, &zero, &grid_rows_);
    columns_ = numroc_(&n, &block, &column_, &zero, &grid_columns_);
    const int leading = std::max(rows_, 1);
    int info = 0;
    descinit_(desc_.data(), &n, &n, &block, &block, &zero, &zero, &context_, &leading, &info);
    for (auto* v : {&a_, &b_, &c_}) v->resize(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(columns_));
    for_each([&](std::size_t at, std::int64_t i, std::int64_t k) {
      a_[at] = a_at(i, k);
      b_[at] = b_at(i, k);
    });
  }
  scalapack_product(const scalapack_product&) = delete;
  scalapack_product& operator=(const scalapack_product&) = delete;
  ~scalapack_product() { Cblacs_gridexit(context_); }

  void operator()() {
    const double one = 1;
    const double zero = 0;
    const int first = 1;
    pdgemm_("N", "N", &n_, &n_, &n_, &one, a_.data(), &first, &first, desc_.data(), b_.data(), &first, &first, desc_.data(),
            &zero, c_.data(), &first, &first, desc_.data());
  }
  double checksum() {
    double sum = 0;
    for_each([&](std::size_t at, std::int64_t i, std::int64_t k) { sum += c_[at] * weight(i, k); });
    return sum_of_all(sum);
  }

 private:
  int n_, block_, context_ = 0, grid_rows_ = 0, grid_columns_ = 0, row_ = 0, column_ = 0, rows_ = 0, columns_ = 0;
  std::array<int, 9> desc_{};
  std::vector<double> a_, b_, c_;

  template <class F>
  void for_each(F f) const {
    const auto global = [this](int local, int process, int processes) {
      return static_cast<std::int64_t>((local / block_ * processes + process) * block_ + local % block_);
    };
    std::size_t at = 0;
    for (int k = 0; k < columns_; ++k)
      for (int i = 0; i < rows_; ++i) f(at++, global(i, row_, grid_rows_), global(k, column_, grid_columns_));
  }
};

template <class Split>
inline constexpr auto product = [](auto a, auto b) { return reshard(einsum<"ij,jk->ik">(a, b), Split{}); };
template <std::int64_t N, class Mesh, class Split>
using product_on = compile<product<Split>, Mesh, in<double, dims<N, N>, Split>, in<double, dims<N, N>, Split>>;

template <class Step, int N>
void race(int grid_rows, int grid_columns, int rounds) {
  launch(mpi{MPI_COMM_WORLD}, Step::device_count, [&](auto& comm) {
    using a_shard = typename Step::template input_shard<0>;
    using c_shard = typename Step::template output_shard<0>;
    const int me = comm.device(0);
    const auto local_columns = a_shard::local_extents[1];
    const std::int64_t offset[] = {me / grid_columns * a_shard::local_extents[0], me % grid_columns * local_columns};
    std::vector<double> a(a_shard::local_elems), b(a.size()), c(c_shard::local_elems);
    for (std::size_t at = 0; at < a.size(); ++at) {
      const auto i = offset[0] + static_cast<std::int64_t>(at) / local_columns;
      const auto k = offset[1] + static_cast<std::int64_t>(at) % local_columns;
      a[at] = a_at(i, k);
      b[at] = b_at(i, k);
    }
    Step step;
    scalapack_product by_64(N, 64, grid_rows, grid_columns);
    scalapack_product by_128(N, 128, grid_rows, grid_columns);
    scalapack_product by_256(N, 256, grid_rows, grid_columns);
    std::vector<double> ours, theirs, ratio;
    for (int round = -2; round < rounds; ++round) {
      std::array<double, 4> took{};
      for (int turn = 0; turn < 4; ++turn) {
        const int which = (turn + round + 4) % 4;
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        if (which == 0) step(comm, a, b, c);
        else (which == 1 ? by_64 : which == 2 ? by_128 : by_256)();
        const double mine = (MPI_Wtime() - start) * 1e3;
        MPI_Allreduce(&mine, &took[static_cast<std::size_t>(which)], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      }
      if (round < 0) continue;
      ours.push_back(took[0]);
      theirs.push_back(std::min({took[1], took[2], took[3]}));
      ratio.push_back(ours.back() / theirs.back());
    }
    double sum = 0;
    for (std::size_t at = 0; at < c.size(); ++at)
      sum += c[at] * weight(offset[0] + static_cast<std::int64_t>(at) / local_columns,
                            offset[1] + static_cast<std::int64_t>(at) % local_columns);
    sum = sum_of_all(sum);
    for (auto* other : {&by_64, &by_128, &by_256})
      if (other->checksum() != sum) throw error("the products differ");
    if (me == 0)
      std::printf("n = %4d on %d x %d   gspmd %7.2f ms   pdgemm %7.2f ms   ratio %.3f (%.3f-%.3f)\n", N, grid_rows, grid_columns,
                  bench::quantile(ours, 0.5), bench::quantile(theirs, 0.5), bench::quantile(ratio, 0.5),
                  bench::quantile(ratio, 0.25), bench::quantile(ratio, 0.75));
  });
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  int processes = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  const detail::single_threaded_blas one_thread;
  using line = mesh<axis<"x", 2>>;
  using square = mesh<axis<"x", 2>, axis<"y", 2>>;
  if (processes == 2) {
    race<product_on<1024, line, split<"x", _>>, 1024>(2, 1, rounds);
    race<product_on<2048, line, split<"x", _>>, 2048>(2, 1, rounds);
  } else if (processes == 4) {
    race<product_on<1024, square, split<"x", "y">>, 1024>(2, 2, rounds);
    race<product_on<2048, square, split<"x", "y">>, 2048>(2, 2, rounds);
  } else {
    std::fprintf(stderr, "mpi_matmul: for 2 or 4 processes\n");
  }
  MPI_Finalize();
  return processes == 2 || processes == 4 ? 0 : 2;
}
