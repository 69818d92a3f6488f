// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Includes Eigen if it is installed, even if gspmd does not use it. Then HAS_EIGEN is defined.
#if __has_include(<eigen3/Eigen/Core>)
#include <eigen3/Eigen/Core>
#define HAS_EIGEN 1
#elif __has_include(<Eigen/Core>)
#include <Eigen/Core>
#define HAS_EIGEN 1
#else
#define HAS_EIGEN 0
#endif
