// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Other ways to say how tensors lie: XLA's text, a placement for each mesh axis, several meshes over the same devices, and data that is
/// dealt out by any rule.

#include "gspmd/layouts/mesh_views.hpp"
#include "gspmd/layouts/open_placement.hpp"
#include "gspmd/layouts/placed_array.hpp"
#include "gspmd/layouts/placements.hpp"
#include "gspmd/layouts/xla_sharding.hpp"
