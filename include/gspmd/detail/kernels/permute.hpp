// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/ir/loops.hpp"
#include "gspmd/detail/ir/permutation_plan.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/kernels/transpose_block.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/target.hpp"

/// Permutation of the dims of a dense local array.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Copies rows of `Bytes` bytes; if Bytes is 0, rows of row_bytes.
template <std::int64_t Bytes>
inline void copy_rows(const permutation_plan& p, const std::byte* in, std::byte* out, std::int64_t elem_bytes,
                      std::int64_t row_bytes = Bytes) {
  const auto bytes = static_cast<std::size_t>(Bytes > 0 ? Bytes : row_bytes);
  const strided_loop<2> last = p.loops.empty() ? strided_loop<2>{} : p.loops[p.loops.count - 1];
  const auto in_step = last.stride[0] * elem_bytes, out_step = last.stride[1] * elem_bytes;
  for (odometer<2> at(p.loops.items, p.loops.count - 1); at.is_there; at.step()) {
    const std::byte* from = in + at.offset[0] * elem_bytes;
    std::byte* to = out + at.offset[1] * elem_bytes;
    for (std::int64_t i = 0; i < last.extent; ++i, from += in_step, to += out_step) std::memcpy(to, from, bytes);
  }
}

/// Writes `from` with permuted dims to `to`. Both are dense and row-major, and do not overlap. `Bits` has the size of
/// an element.
template <class Bits>
[[gnu::always_inline]] inline void permute_by(const permutation_plan& p, const void* from, void* to) {
  constexpr std::int64_t bytes = sizeof(Bits);
  if (p.elems == 0) return;
  if (p.row > 1 || p.cols == 1) {
    const auto* const in = static_cast<const std::byte*>(from);
    auto* const out = static_cast<std::byte*>(to);
    switch (p.row * bytes) {  // short rows are copied by one or two moves each instead of a call
      case 4: return copy_rows<4>(p, in, out, bytes);
      case 8: return copy_rows<8>(p, in, out, bytes);
      case 16: return copy_rows<16>(p, in, out, bytes);
      case 32: return copy_rows<32>(p, in, out, bytes);
      case 64: return copy_rows<64>(p, in, out, bytes);
      default: return copy_rows<0>(p, in, out, bytes, p.row * bytes);
    }
  }
  const Bits* const in = static_cast<const Bits*>(from);
  Bits* const out = static_cast<Bits*>(to);
  // With streaming stores, cache lines that are written whole are not read first.
  const bool streams = p.elems * bytes >= stream_from_bytes;
  for (odometer<2> at(p.loops.items, p.loops.count); at.is_there; at.step())
    transpose_plane(p.rows, p.cols, in + at.offset[0], p.in_ld, out + at.offset[1], p.out_ld, streams);
  if (streams) fence_streams();
}

template <class Bits>
[[gnu::noinline]] void permute(const permutation_plan& p, const void* from, void* to) {
  permute_by<Bits>(p, from, to);
}
/// Permutes by a plan that is known at compile time. Small planes take a sixth less time.
template <class Bits, auto const& Plan>
void permute_constant(const permutation_plan&, const void* from, void* to) {
  permute_by<Bits>(Plan, from, to);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
