// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Programs whose mesh, extents and shardings are known only when they run. `dynamic::compile` takes the same callable
/// as `gspmd::compile`.
#include "gspmd/dynamic/builder.hpp"  // IWYU pragma: export
#include "gspmd/dynamic/compile.hpp"  // IWYU pragma: export
#include "gspmd/dynamic/mesh.hpp"     // IWYU pragma: export
#include "gspmd/dynamic/program.hpp"  // IWYU pragma: export
