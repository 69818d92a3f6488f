// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Fourier transforms.
#include "gspmd/fft/fft.hpp"  // IWYU pragma: export
