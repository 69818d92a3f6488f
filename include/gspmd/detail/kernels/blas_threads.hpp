// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#if defined(GSPMD_HAS_CBLAS)
// OpenBLAS alone has them; with another BLAS the addresses are null.
extern "C" __attribute__((weak)) void openblas_set_num_threads(int);
extern "C" __attribute__((weak)) int openblas_get_num_threads(void);
#elif defined(_OPENMP) && __has_include(<Eigen/Core>)  // Eigen has threads with OpenMP alone
#include <Eigen/Core>
#define GSPMD_HAS_EIGEN_THREADS
#endif

namespace gspmd::detail {

/// Makes the BLAS of this process use `count` threads per call; returns how many it used before, 0 if it cannot be asked.
inline int set_blas_threads(int count) {
  int before = 0;
#if defined(GSPMD_HAS_CBLAS)
  void (*volatile set)(int) = &openblas_set_num_threads;
  int (*volatile get)() = &openblas_get_num_threads;
  if (set == nullptr || get == nullptr) return 0;
  before = get();
  if (count != before) set(count);
#elif defined(GSPMD_HAS_EIGEN_THREADS)
  before = Eigen::nbThreads();
  Eigen::setNbThreads(count);
#else
  static_cast<void>(count);
#endif
  return before;
}

/// As long as one of these is there, the process's BLAS uses one thread per call: devices that are threads of one process compete
/// with its threads otherwise. The last one brings back what was before the first.
class single_threaded_blas {
 public:
  single_threaded_blas() {
    auto& all = held();
    const std::lock_guard lock(all.mutex);
    if (all.count++ == 0) all.before = set_blas_threads(1);
  }
  single_threaded_blas(const single_threaded_blas&) = delete;
  single_threaded_blas& operator=(const single_threaded_blas&) = delete;
  ~single_threaded_blas() {
    auto& all = held();
    const std::lock_guard lock(all.mutex);
    if (--all.count == 0 && all.before > 0) set_blas_threads(all.before);
  }

  [[nodiscard]] static bool is_held() {
    auto& all = held();
    const std::lock_guard lock(all.mutex);
    return all.count > 0;
  }

 private:
  struct state {
    std::mutex mutex;
    int count = 0;
    int before = 0;
  };
  static state& held() {
    static state all;
    return all;
  }
};

}  // namespace gspmd::detail

#undef GSPMD_HAS_EIGEN_THREADS
