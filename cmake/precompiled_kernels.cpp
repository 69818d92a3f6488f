// SPDX-License-Identifier: Apache-2.0
// Compiled in the targets that link gspmd::precompiled.
#define GSPMD_PRECOMPILED_PART 4
#include <gspmd/precompiled.hpp>
