// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The time of each step and collective of a run.
#include "gspmd/trace/trace.hpp"  // IWYU pragma: export
