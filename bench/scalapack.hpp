// SPDX-License-Identifier: Apache-2.0
// A matrix for ScaLAPACK, distributed in square blocks over a grid of all processes; column-major.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

extern "C" {
void Cblacs_get(int context, int what, int* value);
void Cblacs_gridinit(int* context, const char* order, int rows, int columns);
void Cblacs_gridinfo(int context, int* rows, int* columns, int* row, int* column);
void Cblacs_gridexit(int context);
int numroc_(const int* n, const int* block, const int* process, const int* first, const int* processes);
void descinit_(int* desc, const int* m, const int* n, const int* mb, const int* nb, const int* row, const int* column,
               const int* context, const int* leading, int* info);
}

namespace bench {

/// The processes, row by row.
class scalapack_grid {
 public:
  scalapack_grid(int rows, int columns) {
    Cblacs_get(-1, 0, &context_);
    Cblacs_gridinit(&context_, "Row", rows, columns);
    Cblacs_gridinfo(context_, &rows_, &columns_, &row_, &column_);
  }
  scalapack_grid(const scalapack_grid&) = delete;
  scalapack_grid& operator=(const scalapack_grid&) = delete;
  ~scalapack_grid() { Cblacs_gridexit(context_); }

 private:
  friend class scalapack_matrix;
  int context_ = 0, rows_ = 0, columns_ = 0, row_ = 0, column_ = 0;
};

class scalapack_matrix {
 public:
  std::array<int, 9> desc{};
  std::vector<double> local;

  scalapack_matrix(const scalapack_grid& grid, int m, int n, int block) : grid_(grid), block_(block) {
    const int zero = 0;
    rows_ = numroc_(&m, &block, &grid.row_, &zero, &grid.rows_);
    columns_ = numroc_(&n, &block, &grid.column_, &zero, &grid.columns_);
    const int leading = std::max(rows_, 1);
    int info = 0;
    descinit_(desc.data(), &m, &n, &block, &block, &zero, &zero, &grid.context_, &leading, &info);
    local.resize(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(columns_));
  }
  /// Calls f(element, row, column) for each element of this process.
  template <class F>
  void for_each(F f) {
    std::size_t at = 0;
    for (int k = 0; k < columns_; ++k)
      for (int i = 0; i < rows_; ++i)
        f(local[at++], global(i, grid_.row_, grid_.rows_), global(k, grid_.column_, grid_.columns_));
  }
  template <class F>
  void fill(F element) {
    for_each([&](double& x, std::int64_t i, std::int64_t k) { x = element(i, k); });
  }

 private:
  const scalapack_grid& grid_;
  int block_, rows_ = 0, columns_ = 0;

  [[nodiscard]] std::int64_t global(int i, int process, int processes) const {
    return static_cast<std::int64_t>((i / block_ * processes + process) * block_ + i % block_);
  }
};

}  // namespace bench
