// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The MPI backend. A program that includes this header needs the CMake target gspmd::mpi.
#include "gspmd/comm/mpi.hpp"              // IWYU pragma: export
#include "gspmd/comm/mpi_environment.hpp"  // IWYU pragma: export
