// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Pipelines (GSPMD 3.3): layers that lie on stages, one after the other, and microbatches that go through them. `pipeline` runs the
/// schedules gpipe and circular, whose stages it computes together, and grad goes through it. `pipeline_step` runs all schedules, with the loss
/// in it. `timetable` says of each how long stages are idle and what they keep, and draws it.

#include "gspmd/pipeline/layers.hpp"
#include "gspmd/pipeline/microbatches.hpp"
#include "gspmd/pipeline/schedule.hpp"
#include "gspmd/pipeline/scheduled.hpp"
#include "gspmd/pipeline/step.hpp"
#include "gspmd/pipeline/timetable.hpp"
#include "gspmd/pipeline/vectorized.hpp"
