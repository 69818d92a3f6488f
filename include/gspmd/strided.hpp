// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Arguments and results in your own memory, with any strides. gspmd/strided/session.hpp is for programs compiled at
/// run time.
#include "gspmd/strided/step.hpp"   // IWYU pragma: export
#include "gspmd/strided/view.hpp"   // IWYU pragma: export
#include "gspmd/strided/whole.hpp"  // IWYU pragma: export
