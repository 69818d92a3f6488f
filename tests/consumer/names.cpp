// SPDX-License-Identifier: Apache-2.0
// A user's code with its own names, compiled with warnings as errors. gspmd's headers cause no warning.
int f, g, h, x, y, n, i, p, s, v, at, data, size, count, rank, axis, shape, dim, result, step, mesh, value;

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

int own_names() { return f + step + mesh + value; }
