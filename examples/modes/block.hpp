// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Runs a step of a Transformer block in the three modes. Returns true if they give the same weights.
bool run_block();
