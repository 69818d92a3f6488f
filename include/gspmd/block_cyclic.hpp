// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One large matrix over many devices: dealt to a grid of them in blocks, and factored there.
#include "gspmd/block_cyclic/cholesky.hpp"
#include "gspmd/block_cyclic/deal.hpp"
#include "gspmd/block_cyclic/lu.hpp"
