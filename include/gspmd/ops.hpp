// SPDX-License-Identifier: Apache-2.0
#pragma once

/// All operators that a program may call.

// This header is first, because compilers print the include path of a header with each error in it.
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/program.hpp"

#include "gspmd/index.hpp"
#include "gspmd/ops/branches.hpp"
#include "gspmd/ops/dims.hpp"
#include "gspmd/ops/einsum.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/local_op.hpp"
#include "gspmd/ops/loops.hpp"
#include "gspmd/ops/map.hpp"
#include "gspmd/ops/named.hpp"
#include "gspmd/ops/policy.hpp"
#include "gspmd/ops/reduce.hpp"
#include "gspmd/ops/scan.hpp"
#include "gspmd/ops/shape.hpp"
#include "gspmd/windows.hpp"
