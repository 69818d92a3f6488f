// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "gspmd/detail/support/language.hpp"

#if defined(GSPMD_HAS_CBLAS)
namespace gspmd::detail {
// OpenBLAS alone has them; with another BLAS the addresses are null. Declaring OpenBLAS's own names weak would make the user's
// calls of them weak as well, and a library that nothing else needs is not linked for those. A weakref has a name of its own.
// It has to be static.
[[gnu::weakref("openblas_set_num_threads")]] static void weak_openblas_set(int);
[[gnu::weakref("openblas_get_num_threads")]] static int weak_openblas_get();
}  // namespace gspmd::detail
#elif defined(_OPENMP) && __has_include(<Eigen/Core>)  // Eigen has threads with OpenMP alone
#include <Eigen/Core>
#define GSPMD_HAS_EIGEN_THREADS
#endif

namespace gspmd::detail {

/// Returns how many threads the BLAS of this process uses per call, 0 if it cannot be asked.
inline int blas_threads() {
#if defined(GSPMD_HAS_CBLAS)
  int (*volatile get)() = &weak_openblas_get;
  return get == nullptr ? 0 : get();
#elif defined(GSPMD_HAS_EIGEN_THREADS)
  return Eigen::nbThreads();
#else
  return 0;
#endif
}
/// Makes the BLAS of this process use `count` threads per call, if it can be asked; returns what blas_threads() was before.
inline int set_blas_threads(int count) {
  const int before = blas_threads();
#if defined(GSPMD_HAS_CBLAS)
  void (*volatile set)(int) = &weak_openblas_set;
  if (before > 0 && set != nullptr && count != before) set(count);
#elif defined(GSPMD_HAS_EIGEN_THREADS)
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
