# SPDX-License-Identifier: Apache-2.0
# Any CBLAS: a cblas.h and a library that link cblas_sgemm. Defines CBLAS::CBLAS.
# To choose one: -DCBLAS_INCLUDE_DIR=... -DCBLAS_LIBRARY=...
include(CheckCXXSourceCompiles)
include(FindPackageHandleStandardArgs)

find_path(CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas openblas-pthread mkl)
find_library(CBLAS_LIBRARY NAMES openblas mkl_rt blis cblas blas)
mark_as_advanced(CBLAS_INCLUDE_DIR CBLAS_LIBRARY)

if(CBLAS_INCLUDE_DIR AND CBLAS_LIBRARY)
  set(CMAKE_REQUIRED_INCLUDES "${CBLAS_INCLUDE_DIR}")
  set(CMAKE_REQUIRED_LIBRARIES "${CBLAS_LIBRARY}")
  set(CMAKE_REQUIRED_QUIET ON)
  # If netlib's cblas.h lacks extern "C", this does not link, and Eigen is used.
  check_cxx_source_compiles("#include <cblas.h>
    int main(int n, char**) {
      float a[1] = {1.0f};
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1.0f, a, n, a, n, 0.0f, a, n);
    }" CBLAS_LINKS)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
  unset(CMAKE_REQUIRED_QUIET)
endif()

find_package_handle_standard_args(CBLAS REQUIRED_VARS CBLAS_LIBRARY CBLAS_INCLUDE_DIR CBLAS_LINKS)
if(CBLAS_FOUND AND NOT TARGET CBLAS::CBLAS)
  add_library(CBLAS::CBLAS UNKNOWN IMPORTED)
  set_target_properties(CBLAS::CBLAS PROPERTIES
    IMPORTED_LOCATION "${CBLAS_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${CBLAS_INCLUDE_DIR}")
endif()
