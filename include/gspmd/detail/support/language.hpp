// SPDX-License-Identifier: Apache-2.0
#pragma once

// Checks the language of the translation unit. Each header includes this header before any other header of gspmd.
// Headers without other includes of gspmd include it directly (tests/sources.cmake). Including a missing header is the
// only error that stops all compilers. After #error they would continue, with thousands of lines about each concept,
// `throw` and `catch` of the library.
#if __cplusplus < 202002L
#include "gspmd needs C++20: compile with -std=c++20 (CMake: target_compile_features(my_program PRIVATE cxx_std_20))"
#elif !defined(__cpp_exceptions)
#include "gspmd: errors at run time are exceptions of type gspmd::error; compile without -fno-exceptions"
#endif
