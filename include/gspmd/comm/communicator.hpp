// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/communicator.hpp"  // IWYU pragma: export
