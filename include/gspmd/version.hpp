// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The version of the library, 10000 * major + 100 * minor + patch: `#if GSPMD_VERSION >= 200` is 0.2.0 or later.
#define GSPMD_VERSION 200
