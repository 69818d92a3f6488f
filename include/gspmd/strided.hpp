// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Arguments and results in memory of the caller's, wherever their elements lie. (gspmd/strided/session.hpp: for programs compiled at run
/// time.)
#include "gspmd/strided/step.hpp"   // IWYU pragma: export
#include "gspmd/strided/view.hpp"   // IWYU pragma: export
#include "gspmd/strided/whole.hpp"  // IWYU pragma: export
