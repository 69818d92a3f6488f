// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Functions that depend on no type of the user's and are much to compile: planning, what a plan says of itself, kernels of all
/// element types. They are compiled where they are used, or, if GSPMD_PRECOMPILED is defined, in the one file that includes
/// gspmd/precompiled.hpp; in all others the instance is an extern template. So they are templates, of `once` alone:
///
///     template <class = once>
///     plan plan_at_run_time(const graph& g, const mesh_shape& mesh) { ... }
///     GSPMD_COMPILED_ONCE(plan plan_at_run_time<once>(const graph&, const mesh_shape&));
///
/// They are not inline, since a compiler looks into inline ones all the same. What depends on the processor stands in the namespace
/// GSPMD_TARGET: files that are compiled with other flags than that one do not link, rather than run its kernels.
namespace gspmd::detail {
struct once;
}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED_HERE)
#define GSPMD_COMPILED_ONCE(...) template __VA_ARGS__
#elif defined(GSPMD_PRECOMPILED)
#define GSPMD_COMPILED_ONCE(...) extern template __VA_ARGS__
#else
#define GSPMD_COMPILED_ONCE(...) static_assert(true)
#endif
