// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/edge/edge_facts.hpp"  // first, so that its errors have a short include context

#include "gspmd/detail/edge/dense_copies.hpp"
#include "gspmd/detail/edge/external_block.hpp"
#include "gspmd/detail/edge/given_memory.hpp"
#include "gspmd/detail/edge/strided_memory.hpp"
#include "gspmd/detail/transport/exclusive_use.hpp"

/// The header for authors of edges. An edge states how a view of external memory becomes a shard. Write a view, which
/// programs pass, and one struct that states every fact of `complete_edge`. No list changes. A missing fact is a
/// compile error that names the edge and the fact. docs/extending/edge.md adds an edge as an example.
namespace gspmd::extend {

// The facts, and a base class for facts that many edges share (detail/edge/edge_facts.hpp).
using detail::block_of_step;
using detail::complete_edge;
using detail::edge_struct;
using detail::layout_of_step;
using detail::memory_range;
using detail::no_addresses;
using detail::strided_elements;

// A list with an entry for each dim: extents, strides, an index.
using detail::extents;

}  // namespace gspmd::extend
