// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/layouts/detail/open_placement.hpp"  // IWYU pragma: export
