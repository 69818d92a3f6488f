// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/tree.hpp"  // IWYU pragma: export
