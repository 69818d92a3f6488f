// SPDX-License-Identifier: Apache-2.0
// Sparse products and conjugate gradients on two MPI processes, compiled by gspmd. Compared with PETSc's MatMult,
// MatMultTranspose (MPIAIJ, and MPIBAIJ for blocks) and KSPCG without a preconditioner, on the same processes,
// alternately. Also a stencil in place on the vectors of a DMDA, compared with DMGlobalToLocal and loops. Medians over
// the slower rank; the results must be equal.
//
//   mpirun -n 2 mpi_petsc [rounds, 15]
#include <petscdmda.h>
#include <petscksp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/mpi.hpp"
#include "race_over_mpi.hpp"
#include "sparse.hpp"

namespace {

using namespace gspmd;
using namespace bench;

void check(PetscErrorCode code) {
  if (code != 0) throw error("PETSc fails");
}

void expect_equal(const char* what, const doubles& mine, Vec theirs, double relative) {
  const double* expected = nullptr;
  check(VecGetArrayRead(theirs, &expected));
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (!(std::abs(mine[i] - expected[i]) <= relative * std::abs(expected[i]))) {
      std::printf("WRONG: %s: element %zu is %.17g, PETSc's %.17g\n", what, i, mine[i], expected[i]);
      std::exit(1);
    }
  check(VecRestoreArrayRead(theirs, &expected));
}

/// The rows of this rank as a PETSc matrix, with a vector for each side.
struct petsc_matrix {
  Mat a = nullptr;
  Vec x = nullptr, y = nullptr;

  petsc_matrix(const compressed& all, int rank) {
    const auto rows = all.rows / 2, first = rank * rows;
    const auto begin = all.row_start[static_cast<std::size_t>(first)];
    std::vector<PetscInt> start, column;
    for (auto r = first; r <= first + rows; ++r) start.push_back(all.row_start[static_cast<std::size_t>(r)] - begin);
    const auto count = static_cast<std::size_t>(start.back());
    for (std::size_t k = 0; k < count; ++k) column.push_back(all.column[static_cast<std::size_t>(begin) + k]);
    const auto size = static_cast<std::size_t>(all.block * all.block);
    const auto own = static_cast<PetscInt>(rows * all.block);
    const auto block = static_cast<PetscInt>(all.block);
    check(MatCreate(MPI_COMM_WORLD, &a));
    check(MatSetSizes(a, own, own, PETSC_DECIDE, PETSC_DECIDE));
    check(MatSetType(a, block == 1 ? MATMPIAIJ : MATMPIBAIJ));
    if (block == 1) check(MatMPIAIJSetPreallocation(a, 9, nullptr, 9, nullptr));
    else check(MatMPIBAIJSetPreallocation(a, block, 9, nullptr, 9, nullptr));
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row = static_cast<PetscInt>(first + r);
      for (auto k = start[static_cast<std::size_t>(r)]; k < start[static_cast<std::size_t>(r + 1)]; ++k) {
        const double* const v = all.values.data() + (static_cast<std::size_t>(begin) + static_cast<std::size_t>(k)) * size;
        check(MatSetValuesBlocked(a, 1, &row, 1, &column[static_cast<std::size_t>(k)], v, ADD_VALUES));
      }
    }
    check(MatAssemblyBegin(a, MAT_FINAL_ASSEMBLY));
    check(MatAssemblyEnd(a, MAT_FINAL_ASSEMBLY));
    check(MatCreateVecs(a, &x, &y));
  }
  petsc_matrix(const petsc_matrix&) = delete;
  petsc_matrix& operator=(const petsc_matrix&) = delete;
  ~petsc_matrix() {
    check(VecDestroy(&x));
    check(VecDestroy(&y));
    check(MatDestroy(&a));
  }
};

constexpr auto product = [](auto a, auto x) { return multiply(a, x); };
constexpr auto transposed = [](auto a, auto y) { return multiply_transposed(a, y); };
constexpr int trips = 50;
constexpr auto conjugate_gradients = [](auto a, auto b) {
  const auto dot = [](auto x, auto y) { return sum(x * y); };
  return std::get<0>(fori_loop(
      trips,
      [&](auto, auto u, auto r, auto p, auto rr) {
        const auto q = multiply(a, p);
        const auto alpha = rr / dot(p, q);
        const auto r2 = r - alpha * q;
        const auto rr2 = dot(r2, r2);
        return std::tuple{u + alpha * p, r2, r2 + rr2 / rr * p, rr2};
      },
      0.0 * b, b, b, dot(b, b)));
};
template <auto Program, const sparse_layout& Layout, class Vector>
using step_of = compile<Program, mesh<axis<"x", 2>>, sparse_input<double, Layout, "x">, Vector>;

/// `Program` of a matrix and a vector, compared with PETSc's work(matrix).
template <auto Program, const sparse_layout& Layout, class Vector, class Work>
void race_with(const char* what, const compressed& all, int rounds, double relative, Work work) {
  const sparse_matrix<double> m(Layout, all.row_start, all.column, all.values);
  launch(mpi{MPI_COMM_WORLD}, 2, [&](auto& comm) {
    const int me = comm.device(0);
    doubles x(static_cast<std::size_t>(all.rows / 2 * all.block)), y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>((i * 7 + static_cast<std::size_t>(me)) % 16);
    std::vector<const void*> in;
    std::apply([&](const auto&... part) { (in.push_back(part.data() + part.size() / 2 * static_cast<std::size_t>(me)), ...); },
               m.parts());
    in.push_back(x.data());
    void* const out[] = {y.data()};
    step_of<Program, Layout, Vector> step;
    const petsc_matrix theirs(all, me);
    double* to = nullptr;
    check(VecGetArrayWrite(theirs.x, &to));
    std::copy(x.begin(), x.end(), to);
    check(VecRestoreArrayWrite(theirs.x, &to));
    race_over_mpi(
        what, rounds, 1.0, "PETSc", [&] { step.run(comm, in.data(), out); }, [&] { work(theirs); });
    expect_equal(what, y, theirs.y, relative);
  });
}
template <const sparse_layout& Layout>
using vector_of = input<double, shape<Layout.rows>, split<"x">>;
template <const sparse_layout& Layout>
using blocks_of = input<double, shape<Layout.rows, Layout.block>, split<"x", _>>;

void solve(const petsc_matrix& m) {
  static KSP solver = [&] {
    KSP made = nullptr;
    PC none = nullptr;
    check(KSPCreate(MPI_COMM_WORLD, &made));
    check(KSPSetOperators(made, m.a, m.a));
    check(KSPSetType(made, KSPCG));
    check(KSPGetPC(made, &none));
    check(PCSetType(none, PCNONE));
    check(KSPSetNormType(made, KSP_NORM_NATURAL));  // a norm that KSPCG computes in any case: one norm less per iteration
    check(KSPSetTolerances(made, 1e-300, 1e-300, 1e300, trips));
    return made;
  }();
  check(KSPSolve(solver, m.x, m.y));
}

/// The mean of the four neighbours on a grid of a DMDA, split along its last dim, which is our first dim. gspmd reads
/// and writes PETSc's vectors.
constexpr PetscInt height = 4096, width = 2048;
constexpr auto mean_of_neighbours = [](auto t) {
  return 0.25 * (shift(t, -1, along(0)) + shift(t, 1, along(0)) + shift(t, -1, along(1)) + shift(t, 1, along(1)));
};
void race_on_grid(int rounds) {
  DM grid = nullptr;
  Vec from = nullptr, ours = nullptr, theirs = nullptr, around = nullptr;
  check(DMDACreate2d(MPI_COMM_WORLD, DM_BOUNDARY_GHOSTED, DM_BOUNDARY_GHOSTED, DMDA_STENCIL_STAR, width, height, 1, 2, 1, 1,
                     nullptr, nullptr, &grid));
  check(DMSetUp(grid));
  for (Vec* const v : {&from, &ours, &theirs}) check(DMCreateGlobalVector(grid, v));
  check(DMCreateLocalVector(grid, &around));  // 0 outside of the grid
  PetscInt i0 = 0, j0 = 0, columns = 0, rows = 0;
  check(DMDAGetCorners(grid, &j0, &i0, nullptr, &columns, &rows, nullptr));
  double** at = nullptr;
  check(DMDAVecGetArray(grid, from, &at));
  for (PetscInt i = i0; i < i0 + rows; ++i)
    for (PetscInt j = 0; j < width; ++j) at[i][j] = static_cast<double>((3 * i + 7 * j) % 32);
  check(DMDAVecRestoreArray(grid, from, &at));
  launch(mpi{MPI_COMM_WORLD}, 2, [&](auto& comm) {
    using step_on_grid = compile<mean_of_neighbours, mesh<axis<"x", 2>>, input<double, shape<height, width>, split<"x", _>>>;
    step_on_grid step;
    const auto by_us = [&] {
      const double* in = nullptr;
      double* out = nullptr;
      check(VecGetArrayRead(from, &in));
      check(VecGetArrayWrite(ours, &out));
      const auto count = static_cast<std::size_t>(rows * width);
      step(comm, detail::span<const double>(in, count), detail::span<double>(out, count));
      check(VecRestoreArrayWrite(ours, &out));
      check(VecRestoreArrayRead(from, &in));
    };
    const auto by_them = [&] {
      double **in = nullptr, **out = nullptr;
      check(DMGlobalToLocalBegin(grid, from, INSERT_VALUES, around));
      check(DMGlobalToLocalEnd(grid, from, INSERT_VALUES, around));
      check(DMDAVecGetArrayRead(grid, around, &in));
      check(DMDAVecGetArrayWrite(grid, theirs, &out));
      for (PetscInt i = i0; i < i0 + rows; ++i)
        for (PetscInt j = 0; j < width; ++j) out[i][j] = 0.25 * (in[i - 1][j] + in[i + 1][j] + in[i][j - 1] + in[i][j + 1]);
      check(DMDAVecRestoreArrayWrite(grid, theirs, &out));
      check(DMDAVecRestoreArrayRead(grid, around, &in));
    };
    race_over_mpi("5 points on a DMDA of 4096 x 2048", rounds, 1.0, "PETSc", by_us, by_them);
  });
  PetscBool are_equal = PETSC_FALSE;
  check(VecEqual(ours, theirs, &are_equal));
  if (are_equal == PETSC_FALSE) throw error("the stencils differ");
  for (Vec* const v : {&from, &ours, &theirs, &around}) check(VecDestroy(v));
  check(DMDestroy(&grid));
}

}  // namespace

int main(int argc, char** argv) {
  check(PetscInitialize(&argc, &argv, nullptr, nullptr));
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const auto grid = laplacian(1500, 1500, 1), near = scattered(1'000'000), blocks = laplacian(500, 500, 3);
  const auto times = [](const petsc_matrix& m) { check(MatMult(m.a, m.x, m.y)); };
  const auto times_transposed = [](const petsc_matrix& m) { check(MatMultTranspose(m.a, m.x, m.y)); };
  race_with<product, five_points, vector_of<five_points>>("A x, 5 points, 1500 x 1500", grid, rounds, 0, times);
  race_with<transposed, five_points, vector_of<five_points>>("A^T y, 5 points, 1500 x 1500", grid, rounds, 0, times_transposed);
  race_with<product, at_random, vector_of<at_random>>("A x, 9 columns at random, 10^6 rows", near, rounds, 0, times);
  race_with<product, in_blocks, blocks_of<in_blocks>>("A x, 5 points, 500 x 500, blocks of 3", blocks, rounds, 0, times);
  race_with<conjugate_gradients, five_points, vector_of<five_points>>("50 iterations of conjugate gradients", grid, rounds, 1e-6,
                                                                      solve);
  race_on_grid(rounds);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) all_targets.print();
  check(PetscFinalize());
  return 0;
}
