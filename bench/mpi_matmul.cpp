// SPDX-License-Identifier: Apache-2.0
// C = A B in doubles on two or four MPI processes, compiled by gspmd. Compared with ScaLAPACK's pdgemm on the same
// processes with the same BLAS, interleaved. A, B and C are distributed over all processes in both. pdgemm runs with
// three block sizes: the ratio is to the fastest block size in each round. Medians over the slower rank; all four
// products must be equal.
//
//   mpirun -n 2 mpi_matmul [rounds, 20]        on a mesh of 2, and a grid of 2 x 1
//   mpirun -n 4 mpi_matmul [rounds, 20]        on a mesh of 2 x 2, and a grid of 2 x 2
#include "gspmd/mpi.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gspmd/detail/kernels/blas_threads.hpp"
#include "gspmd/gspmd.hpp"
#include "race.hpp"
#include "scalapack.hpp"

extern "C" {
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

/// Returns the sum of the elements of C over all processes, weighted by position.
double sum_of_all(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

/// pdgemm's operands and result.
class scalapack_product {
 public:
  scalapack_product(int n, int block, int grid_rows, int grid_columns)
      : n_(n), grid_(grid_rows, grid_columns), a_(grid_, n, n, block), b_(grid_, n, n, block), c_(grid_, n, n, block) {
    a_.fill(a_at);
    b_.fill(b_at);
  }

  void operator()() {
    const double one = 1;
    const double zero = 0;
    const int first = 1;
    pdgemm_("N", "N", &n_, &n_, &n_, &one, a_.local.data(), &first, &first, a_.desc.data(), b_.local.data(), &first, &first,
            b_.desc.data(), &zero, c_.local.data(), &first, &first, c_.desc.data());
  }
  double checksum() {
    double sum = 0;
    c_.for_each([&](double x, std::int64_t i, std::int64_t k) { sum += x * weight(i, k); });
    return sum_of_all(sum);
  }

 private:
  int n_;
  bench::scalapack_grid grid_;
  bench::scalapack_matrix a_, b_, c_;
};

template <class Split>
inline constexpr auto product = [](auto a, auto b) { return reshard(einsum<"ij,jk->ik">(a, b), Split{}); };
template <std::int64_t N, class Mesh, class Split>
using product_on = compile<product<Split>, Mesh, input<double, shape<N, N>, Split>, input<double, shape<N, N>, Split>>;

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
    bench::race_times times;
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
      if (round >= 0) times.add(took[0], std::min({took[1], took[2], took[3]}));
    }
    double sum = 0;
    for (std::size_t at = 0; at < c.size(); ++at)
      sum += c[at] * weight(offset[0] + static_cast<std::int64_t>(at) / local_columns,
                            offset[1] + static_cast<std::int64_t>(at) % local_columns);
    sum = sum_of_all(sum);
    for (auto* other : {&by_64, &by_128, &by_256})
      if (other->checksum() != sum) throw error("the products differ");
    if (me == 0)
      times.print(
          "product of n x n doubles, n = " + std::to_string(N) + ", " + std::to_string(grid_rows * grid_columns) + " ranks",
          "pdgemm");
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
