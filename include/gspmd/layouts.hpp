// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Other notations of shardings (XLA's text, a placement list, several meshes over the same devices), and tensors that
/// are distributed by your own rule.

#include "gspmd/layouts/mesh_views.hpp"
#include "gspmd/layouts/open_placement.hpp"
#include "gspmd/layouts/placed_array.hpp"
#include "gspmd/layouts/placements.hpp"
#include "gspmd/layouts/xla_sharding.hpp"
