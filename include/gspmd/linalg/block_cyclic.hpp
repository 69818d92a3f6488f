// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One large matrix on many devices: distributed block-cyclically over a grid of devices, and factored there.
#include "gspmd/linalg/block_cyclic/cholesky.hpp"
#include "gspmd/linalg/block_cyclic/distribute.hpp"
#include "gspmd/linalg/block_cyclic/lu.hpp"
