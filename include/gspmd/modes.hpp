// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Programs that determine their communication themselves:
///  * the explicit mode: shardings in the types of tensors
///  * the manual mode: regions written for a single device, with collectives
///  * distributed tensors: variables of a program that runs on each device
///  * checked meshes: data that must be equal on several devices is compared

#include "gspmd/modes/distributed.hpp"
#include "gspmd/modes/local.hpp"
#include "gspmd/modes/manual.hpp"
#include "gspmd/modes/tensor.hpp"
