// SPDX-License-Identifier: Apache-2.0
// Compiled in the targets that link gspmd::precompiled or gspmd::precompiled_run.
#define GSPMD_PRECOMPILED_PART 1
#include <gspmd/precompiled.hpp>
