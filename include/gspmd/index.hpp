// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Operators that find their elements by numbers: gather, scatter and lookups, sort and top_k, running sums, reductions by a monoid of the
/// user's, random numbers by global index.

#include "gspmd/index/fold.hpp"
#include "gspmd/index/gather.hpp"
#include "gspmd/index/lookup.hpp"
#include "gspmd/index/order.hpp"
#include "gspmd/index/random.hpp"
#include "gspmd/index/sort.hpp"
