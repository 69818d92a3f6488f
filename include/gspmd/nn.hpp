// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Neural networks: activation functions, normalisation, attention, loss, dropout, initial values, optimizers and
/// pipelines.
#include "gspmd/nn/activations.hpp"       // IWYU pragma: export
#include "gspmd/nn/attention.hpp"         // IWYU pragma: export
#include "gspmd/nn/cross_entropy.hpp"     // IWYU pragma: export
#include "gspmd/nn/dropout.hpp"           // IWYU pragma: export
#include "gspmd/nn/initializers.hpp"      // IWYU pragma: export
#include "gspmd/nn/norms.hpp"             // IWYU pragma: export
#include "gspmd/nn/optimizer.hpp"         // IWYU pragma: export
#include "gspmd/nn/pipeline.hpp"          // IWYU pragma: export
#include "gspmd/nn/rotary_embedding.hpp"  // IWYU pragma: export
