// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Operators that select or order elements by number: gather, scatter, lookups, sort, top_k and running sums. Also
/// reductions by your own monoid, and random numbers by global index.

#include "gspmd/index/fold.hpp"
#include "gspmd/index/gather.hpp"
#include "gspmd/index/lookup.hpp"
#include "gspmd/index/order.hpp"
#include "gspmd/index/random.hpp"
#include "gspmd/index/sort.hpp"
