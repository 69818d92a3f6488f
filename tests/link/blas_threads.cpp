// SPDX-License-Identifier: Apache-2.0
// A program that calls OpenBLAS only for its number of threads. gspmd's header must not make this call weak: with --as-needed, the linker
// drops a library that only weak calls use.
#include <gspmd/detail/kernels/blas_threads.hpp>

extern "C" void openblas_set_num_threads(int);
extern "C" int openblas_get_num_threads(void);

int main() {
  openblas_set_num_threads(2);
  const int own = openblas_get_num_threads();
  int held = 0;
  {
    const gspmd::detail::single_threaded_blas one;
    held = openblas_get_num_threads();
  }
  return held == 1 && openblas_get_num_threads() == own ? 0 : 1;
}
