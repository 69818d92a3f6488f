// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Arguments and results in your own memory, with any strides. For whole arrays of programs planned at run time, also
/// include gspmd/external/program.hpp.
#include "gspmd/external/shards.hpp"  // IWYU pragma: export
#include "gspmd/external/view.hpp"    // IWYU pragma: export
#include "gspmd/external/whole.hpp"   // IWYU pragma: export
