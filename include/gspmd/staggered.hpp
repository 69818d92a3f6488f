// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Grids whose fields have different extents.
#include "gspmd/staggered/staggered.hpp"  // IWYU pragma: export
