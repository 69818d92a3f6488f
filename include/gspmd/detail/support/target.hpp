// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/language.hpp"

/// GSPMD_TARGET names the flags that the kernels depend on: `lanes64_fma_cblas`. The kernels are in an inline namespace
/// of that name. So translation units with different -march or BLAS keep their own kernels. Otherwise the linker would
/// pick any one of the inline functions with the same name.
#if defined(__AVX512F__)
#define GSPMD_TARGET_LANES lanes64
#elif defined(__AVX__)
#define GSPMD_TARGET_LANES lanes32
#elif defined(__SSE4_2__)
#define GSPMD_TARGET_LANES lanes16_sse42
#elif defined(__SSE2__)
#define GSPMD_TARGET_LANES lanes16
#else
#define GSPMD_TARGET_LANES lanes16_without_streams
#endif

#if defined(__FMA__)
#define GSPMD_TARGET_PRODUCTS fma
#else
#define GSPMD_TARGET_PRODUCTS plain
#endif

#if defined(GSPMD_HAS_CBLAS) && defined(GSPMD_HAS_ONEDNN)
#define GSPMD_TARGET_GEMM cblas_onednn
#elif defined(GSPMD_HAS_ONEDNN)
#define GSPMD_TARGET_GEMM onednn
#elif defined(GSPMD_HAS_CBLAS)
#define GSPMD_TARGET_GEMM cblas
#elif __has_include(<Eigen/Core>)
#define GSPMD_TARGET_GEMM eigen
#else
#define GSPMD_TARGET_GEMM alone
#endif

// With a precompiled library, each undefined reference contains this name, which explains why a file with other flags
// does not link.
#if defined(GSPMD_PRECOMPILED)
#define GSPMD_TARGET_JOIN(lanes, products, gemm) \
  precompiled_needs_one_march_and_one_blas_in_all_files_here_##lanes##_##products##_##gemm
#else
#define GSPMD_TARGET_JOIN(lanes, products, gemm) lanes##_##products##_##gemm
#endif
#define GSPMD_TARGET_NAME(lanes, products, gemm) GSPMD_TARGET_JOIN(lanes, products, gemm)
#define GSPMD_TARGET GSPMD_TARGET_NAME(GSPMD_TARGET_LANES, GSPMD_TARGET_PRODUCTS, GSPMD_TARGET_GEMM)
