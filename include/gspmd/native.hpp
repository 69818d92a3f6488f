// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Compiled loops for programs that are planned at run time.
#include "gspmd/native/native_code.hpp"  // IWYU pragma: export
