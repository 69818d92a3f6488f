// SPDX-License-Identifier: Apache-2.0
// An operator of the tests' own is planned while compiling, by every compiler; program.hpp says what its plan is.
#include <gspmd/gspmd.hpp>

#include "new_operator/program.hpp"

static_assert(new_operator::step::device_count == 4);
