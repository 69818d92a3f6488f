// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Eigen where it is installed, whether or not gspmd multiplies with it: HAS_EIGEN says so.
#if __has_include(<eigen3/Eigen/Core>)
#include <eigen3/Eigen/Core>
#define HAS_EIGEN 1
#elif __has_include(<Eigen/Core>)
#include <Eigen/Core>
#define HAS_EIGEN 1
#else
#define HAS_EIGEN 0
#endif
