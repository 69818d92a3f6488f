// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Operators that read windows of their operands: convolution, pooling, reduce_window, stencils.

#include "gspmd/windows/convolution.hpp"
#include "gspmd/windows/pool.hpp"
#include "gspmd/windows/stencil.hpp"
#include "gspmd/windows/window.hpp"
