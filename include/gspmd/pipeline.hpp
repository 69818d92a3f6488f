// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/pipeline/microbatches.hpp"
#include "gspmd/pipeline/schedule.hpp"
#include "gspmd/pipeline/timetable.hpp"
#include "gspmd/pipeline/vectorized.hpp"
