// SPDX-License-Identifier: Apache-2.0
// Compiled in the targets that link gspmd::precompiled_mpi.
#define GSPMD_PRECOMPILED_PART 8
#include <gspmd/precompiled.hpp>
