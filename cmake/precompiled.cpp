// SPDX-License-Identifier: Apache-2.0
// What the target gspmd::precompiled adds to a program.
#include <gspmd/precompiled.hpp>
