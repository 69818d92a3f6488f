// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Computes y = a x for a [3, 2] matrix, on two threads.
[[gnu::visibility("default")]] void times_in_library(const double* a, const double* x, double* y);
/// Throws gspmd::error.
[[gnu::visibility("default")]] void fail_in_library();
