// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Searches for better annotations of a program, in the compiler and at run time.
#include "gspmd/search/find_annotations.hpp"    // IWYU pragma: export
#include "gspmd/search/search_annotations.hpp"  // IWYU pragma: export
