// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/local_block.hpp"  // IWYU pragma: export
