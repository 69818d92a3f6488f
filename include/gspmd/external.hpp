// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Arguments and results in your own memory, with any strides. gspmd/external/session.hpp is for programs planned at
/// run time.
#include "gspmd/external/step.hpp"   // IWYU pragma: export
#include "gspmd/external/view.hpp"   // IWYU pragma: export
#include "gspmd/external/whole.hpp"  // IWYU pragma: export
