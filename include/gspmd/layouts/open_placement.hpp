// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/open_placement.hpp"  // IWYU pragma: export
