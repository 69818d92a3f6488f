// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Random numbers by global index: the same numbers on every mesh. gspmd/index.hpp includes this header, too.
#include "gspmd/index/random.hpp"  // IWYU pragma: export
