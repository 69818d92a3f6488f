// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "gspmd/detail/ir/loops.hpp"
#include "gspmd/detail/ir/permutation_plan.hpp"
#include "gspmd/detail/ir/spec.hpp"
#include "gspmd/detail/kernels/lanes.hpp"
#include "gspmd/detail/kernels/transpose_block.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/target.hpp"

/// Permutation of the dims of a dense local array.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

template <int Bytes, class T>
inline void copy_rows(const permutation_plan& p, const T* in, T* out) {
  const auto bytes = Bytes > 0 ? static_cast<std::size_t>(Bytes) : static_cast<std::size_t>(p.row) * sizeof(T);
  for_each_offset<2>(p.loops.items, p.loops.count, [&](const std::int64_t* at) { std::memcpy(out + at[1], in + at[0], bytes); });
}

/// Writes `in` with its dims permuted to `out`; both are dense and row-major and do not overlap.
template <class T, class Spec>
void permute(const Spec& spec, const T* in, T* out) {
  with_derived<plan_permutation>(spec, [&](auto plan) {
    const permutation_plan& p = plan();
    if (p.elems == 0) return;
    if (p.row > 1 || p.columns == 1) {
      switch (p.row * static_cast<std::int64_t>(sizeof(T))) {  // short rows are one or two moves each, not calls
        case 2: return copy_rows<2>(p, in, out);
        case 4: return copy_rows<4>(p, in, out);
        case 8: return copy_rows<8>(p, in, out);
        case 16: return copy_rows<16>(p, in, out);
        case 32: return copy_rows<32>(p, in, out);
        case 64: return copy_rows<64>(p, in, out);
        default: return copy_rows<0>(p, in, out);
      }
    }
    // Past the caches, lines that are written whole need not be read first.
    const bool streams = p.elems * static_cast<std::int64_t>(sizeof(T)) >= stream_from_bytes;
    for_each_offset<2>(p.loops.items, p.loops.count, [&](const std::int64_t* at) {
      transpose_plane(p.rows, p.columns, in + at[0], p.in_ld, out + at[1], p.out_ld, streams);
    });
    if (streams) fence_streams();
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
