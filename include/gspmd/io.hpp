// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Checkpoints, and arrays in safetensors, .npy and raw files. gspmd/io/hdf5.hpp is separate: it needs the CMake target
/// gspmd::hdf5.
#include "gspmd/io/checkpoint.hpp"   // IWYU pragma: export
#include "gspmd/io/npy.hpp"          // IWYU pragma: export
#include "gspmd/io/raw_file.hpp"     // IWYU pragma: export
#include "gspmd/io/safetensors.hpp"  // IWYU pragma: export
