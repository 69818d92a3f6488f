// SPDX-License-Identifier: Apache-2.0
// Every compiler plans an operator and passes that only the tests define. Each program.hpp states the plans.
#include <gspmd/gspmd.hpp>

#include "extend/new_operator/program.hpp"
#include "extend/new_pass/program.hpp"

static_assert(new_operator::step::device_count == 4 && new_pass::quick_step::device_count == 2);
