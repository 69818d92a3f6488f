// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/language.hpp"

/// Functions that depend on no type of the user's and are much to compile. They are compiled where they are used, or, if
/// GSPMD_PRECOMPILED is defined, in the files that include gspmd/precompiled.hpp; all others are told that the instance is there. So they
/// are templates, of `once` alone:
///
///     template <class = once>
///     plan plan_at_run_time(const graph& g, const mesh_shape& mesh) { ... }
///     GSPMD_PLANNED_ONCE(plan plan_at_run_time<once>(const graph&, const mesh_shape&));
///
///     GSPMD_COMPILED_ONCE   part 1: what every program runs with: the runner, transports, checks, texts
///     GSPMD_PLANNED_ONCE    part 2: the planner, for programs that are planned at run time; it runs for milliseconds
///     GSPMD_KERNELS_ONCE    part 4: what such programs run with: kernels of all element types
///
/// They are not inline, since a compiler looks into inline ones all the same. What depends on the processor stands in the namespace
/// GSPMD_TARGET: files that are compiled with other flags than that one do not link, rather than run its kernels.
namespace gspmd::detail {
struct once;
}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#define GSPMD_COMPILED_ONCE(...) static_assert(true)
#define GSPMD_PLANNED_ONCE(...) static_assert(true)
#define GSPMD_KERNELS_ONCE(...) static_assert(true)
#else
#if defined(GSPMD_PRECOMPILED_HERE) && (GSPMD_PRECOMPILED_HERE & 1) != 0
#define GSPMD_COMPILED_ONCE(...) template __VA_ARGS__
#else
#define GSPMD_COMPILED_ONCE(...) extern template __VA_ARGS__
#endif
#if defined(GSPMD_PRECOMPILED_HERE) && (GSPMD_PRECOMPILED_HERE & 2) != 0
#define GSPMD_PLANNED_ONCE(...) template __VA_ARGS__
#else
#define GSPMD_PLANNED_ONCE(...) extern template __VA_ARGS__
#endif
#if defined(GSPMD_PRECOMPILED_HERE) && (GSPMD_PRECOMPILED_HERE & 4) != 0
#define GSPMD_KERNELS_ONCE(...) template __VA_ARGS__
#else
#define GSPMD_KERNELS_ONCE(...) extern template __VA_ARGS__
#endif
#endif
