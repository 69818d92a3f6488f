// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Pipelines (GSPMD 3.3): the layers are distributed over stages, and microbatches pass through the stages. `pipeline`
/// runs the schedules gpipe and circular, computes all stages of a tick together, and is differentiable by grad.
/// `pipeline_step` runs all schedules and includes the loss. `timetable` computes the idle time and the kept values of
/// the stages for each schedule, and draws it.

#include "gspmd/nn/pipeline/layers.hpp"
#include "gspmd/nn/pipeline/microbatches.hpp"
#include "gspmd/nn/pipeline/schedule.hpp"
#include "gspmd/nn/pipeline/scheduled.hpp"
#include "gspmd/nn/pipeline/step.hpp"
#include "gspmd/nn/pipeline/timetable.hpp"
#include "gspmd/nn/pipeline/vectorized.hpp"
