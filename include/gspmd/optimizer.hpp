// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/optimizer/adam.hpp"
#include "gspmd/optimizer/schedules.hpp"
#include "gspmd/optimizer/sgd.hpp"
#include "gspmd/optimizer/state_of.hpp"
