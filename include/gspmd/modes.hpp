// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Programs that say what is sent: the explicit mode (layouts in the types of tensors), the manual mode (regions that say what one device
/// does) and its collectives, tensors as variables of a program that runs on every device, and meshes on which equal data is checked.

#include "gspmd/modes/checked.hpp"
#include "gspmd/modes/distributed.hpp"
#include "gspmd/modes/local.hpp"
#include "gspmd/modes/manual.hpp"
#include "gspmd/modes/tensor.hpp"
