// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/detail/ops/sources.hpp"

namespace gspmd::detail {

/// Returns true if tensors of `type` may be indices: integers of any type.
constexpr bool may_be_index(dtype type) { return facts_of(type).is_integer; }

/// Returns the indices as s32 or s64, the types that kernels read. s8, u8 and s16 become s32; u32 and u64 become s64.
///
/// A u64 beyond the largest s64 becomes the largest s64. Both are outside of every dim, so clip, fill and error have
/// the same effect. Returns tensors of other types unchanged; may_be_index returns false for these types.
constexpr int as_index(graph& g, int indices, location at) {
  if (indices < 0) return indices;
  const dtype type = g.nodes[static_cast<std::size_t>(indices)].type;
  if (type == dtype::s32 || type == dtype::s64 || !may_be_index(type)) return indices;
  if (type == dtype::u64) {
    const extents shape = g.nodes[static_cast<std::size_t>(indices)].shape;
    const int most = add_constant(g, type, shape, 0, std::numeric_limits<std::int64_t>::max(), at);
    indices = add_elementwise(g, code_of<min_op>, {indices, most}, at);
  }
  return add_elementwise(g, code_of<cast_op>, {indices}, at, bytes_of(type) < 4 ? dtype::s32 : dtype::s64);
}

}  // namespace gspmd::detail
