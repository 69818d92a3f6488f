// SPDX-License-Identifier: Apache-2.0
#pragma once

// The language that gspmd is written in. Every header includes this one before anything else of gspmd: the headers that include no other
// header of gspmd include it themselves (tests/sources.cmake).
// A header that does not exist is the one error that ends a compilation in all compilers. After #error they would go on, with thousands of
// lines on each concept, `throw` and `catch` of the library.
#if __cplusplus < 202002L
#include "gspmd needs C++20: compile with -std=c++20 (CMake: target_compile_features(my_program PRIVATE cxx_std_20))"
#elif !defined(__cpp_exceptions)
#include "gspmd: what goes wrong at run time is thrown as gspmd::error; compile without -fno-exceptions"
#endif
