// SPDX-License-Identifier: Apache-2.0
// An operator that only the tests define is planned at compile time, by every compiler. program.hpp states its plan.
#include <gspmd/gspmd.hpp>

#include "extend/new_operator/program.hpp"

static_assert(new_operator::step::device_count == 4);
