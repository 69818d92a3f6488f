// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "gspmd/detail/support/language.hpp"

#if defined(GSPMD_HAS_CBLAS)
namespace gspmd::detail {
// Only OpenBLAS has these functions. With another BLAS the addresses are null. A weak declaration of OpenBLAS's own
// names would make the user's calls weak too. The linker would then not link a library for these calls. A weakref has a
// name of its own. It must be static.
[[gnu::weakref("openblas_set_num_threads")]] static void weak_openblas_set(int);
[[gnu::weakref("openblas_get_num_threads")]] static int weak_openblas_get();
}  // namespace gspmd::detail
#elif defined(_OPENMP) && __has_include(<Eigen/Core>)  // Eigen has threads only with OpenMP
#include <Eigen/Core>
#define GSPMD_HAS_EIGEN_THREADS
#endif

namespace gspmd::detail {

/// Returns the number of threads that the BLAS of this process uses per call, or 0 if it is unknown.
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
/// Makes the BLAS of this process use `count` threads per call, if the BLAS supports that. Returns the previous result
/// of blas_threads().
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

/// While an object of this class exists, the BLAS of this process uses one thread per call. Otherwise its threads would
/// compete with devices that are threads of the same process. The destructor of the last object restores the number
/// from before the first one.
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
