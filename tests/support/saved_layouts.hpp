// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "support/layouts.hpp"
#include "support/stored_states.hpp"

/// The layouts of the arrays in tests of faults, saved on four devices and loaded on three. One array is split in two
/// dims, one is replicated.
namespace saved_layouts {

using stored_states::laid_out;

inline const laid_out<double> on_plane(layouts::mesh_of({2, 2}), layouts::shape_of({5, 6}), layouts::split({{0}, {1}}));
inline const laid_out<std::int8_t> on_all(layouts::mesh_of({2, 2}), layouts::shape_of({3}), {});
inline const laid_out<double> on_row(layouts::mesh_of({3}), layouts::shape_of({5, 6}), layouts::split({{}, {0}}));
inline const laid_out<std::int8_t> on_three(layouts::mesh_of({3}), layouts::shape_of({3}), layouts::split({{0}}));

}  // namespace saved_layouts
