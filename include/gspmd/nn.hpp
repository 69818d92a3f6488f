// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Neural networks: attention, optimizers and pipelines.
#include "gspmd/nn/attention.hpp"  // IWYU pragma: export
#include "gspmd/nn/optimizer.hpp"  // IWYU pragma: export
#include "gspmd/nn/pipeline.hpp"   // IWYU pragma: export
