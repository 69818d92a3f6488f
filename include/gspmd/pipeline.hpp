// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Pipelines (GSPMD 3.3): layers that lie on stages, one after the other, and microbatches that go through them. `pipeline` runs the
/// schedules gpipe and circular, and grad goes through it; `pipeline_step` runs eager_one_forward_one_backward, with the loss in it.
/// one_forward_one_backward and interleaved are described and drawn, with their bubbles and their memory (timetable), and are not run.

#include "gspmd/pipeline/layers.hpp"
#include "gspmd/pipeline/microbatches.hpp"
#include "gspmd/pipeline/schedule.hpp"
#include "gspmd/pipeline/step.hpp"
#include "gspmd/pipeline/timetable.hpp"
#include "gspmd/pipeline/vectorized.hpp"
