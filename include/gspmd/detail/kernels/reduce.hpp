// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/ir/loops.hpp"
#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ir/reduction_plan.hpp"
#include "gspmd/detail/kernels/reduce_rows.hpp"
#include "gspmd/detail/support/target.hpp"

/// Reduction of some dims of a dense local array.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// A reduction over any number of reduced dims, each with its own bound, for a piece of the result. The loops are
/// ordered from the outermost to the innermost. The kept loops of a piece are dense in the result, which has at most
/// reduced_piece_bytes. Strides are in bytes.
template <class Source>
struct nested_reduction {
  using position = typename Source::position;
  using results = typename Source::results;

  Source& source;
  strided_loop<2> loops[max_rank];
  int count = 0;

  /// Runs the loops from `i` on.
  void run(int i, position in, results out, bool accumulate) const {
    const auto& loop = loops[i];
    const bool is_kept = loop.stride[1] != 0;
    if (i == count - 1 && !is_kept) {
      typename Source::template room<most_elem_bytes> result;
      reduce_contiguous(source, in, loop.extent, accumulate ? result.get() : out);
      if (accumulate) source.combine(out, result.get(), 1);
    } else if (i == count - 2 && !is_kept && loops[i + 1].stride[1] != 0) {
      reduce_rows(source, in, loop.extent, loop.stride[0] / source.elem_bytes(), loops[i + 1].extent, out, accumulate);
    } else if (is_kept) {
      for (std::int64_t k = 0; k < loop.extent; ++k) run(i + 1, in + k * loop.stride[0], out + k * loop.stride[1], accumulate);
    } else {
      reduce(i, loop.extent, in, out, accumulate);
    }
  }

 private:
  void reduce(int i, std::int64_t n, position in, results out, bool accumulate) const {
    const auto step = loops[i].stride[0];
    if (n <= parts_in_turn) {
      for (std::int64_t k = 0; k < n; ++k) run(i + 1, in + k * step, out, accumulate || k > 0);
      return;
    }
    std::int64_t width = 1;
    for (int k = i + 1; k < count; ++k)
      if (loops[k].stride[1] != 0) width *= loops[k].extent;
    const auto part = part_size(n, parts_in_turn);
    typename Source::template room<reduced_piece_bytes> sum;
    for (std::int64_t k = 0; k < n; k += part) {
      const bool adds = accumulate || k > 0;
      reduce(i, std::min(part, n - k), in + k * step, adds ? sum.get() : out, false);
      if (adds) source.combine(out, sum.get(), width);
    }
  }
};

/// Reduces all pieces. The kept loops are cut, inner loops first, so that each piece has at most source.piece()
/// results.
template <class Source>
[[gnu::noinline]] void reduce_nested(Source& source, const reduction_plan& p, const std::int64_t* valid,
                                     typename Source::position in, typename Source::results out) {
  nested_reduction<Source> piece{source, {}, p.loops.count};
  strided_loop<2> cuts[max_rank];
  std::int64_t begin[max_rank]{};
  std::int64_t room = source.piece();
  for (int i = piece.count - 1; i >= 0; --i) {
    auto& loop = piece.loops[i] = p.loops[i];
    for (auto& stride : loop.stride) stride *= source.elem_bytes();
    if (p.loop_dim[i] >= 0) {
      loop.extent = valid[p.loop_dim[i]];
      continue;
    }
    loop.extent = std::min(loop.extent, room);
    room /= loop.extent;
  }
  for (int i = 0; i < piece.count; ++i) cuts[i] = piece.loops[i];
  for (int i = 0; i >= 0;) {
    auto from = in;
    auto to = out;
    for (int k = 0; k < piece.count; ++k) {
      if (p.loop_dim[k] >= 0) continue;
      from += begin[k] * cuts[k].stride[0];
      to += begin[k] * cuts[k].stride[1];
      piece.loops[k].extent = std::min(cuts[k].extent, p.loops[k].extent - begin[k]);
    }
    std::int64_t first = 0, together = source.elem_bytes();
    int k = piece.count - 1;
    for (; k >= 0; --k) {
      const auto& loop = piece.loops[k];
      first = p.loop_dim[k] < 0 ? begin[k] * loop.stride[0] : 0;
      together = loop.stride[0] * loop.extent;
      if (loop.extent != p.loops[k].extent) break;
    }
    source.lie_together(first, together, k < 0 ? together : piece.loops[k].stride[0] * p.loops[k].extent);
    piece.run(0, from, to, false);
    for (i = piece.count - 1; i >= 0; --i) {
      if (p.loop_dim[i] >= 0) continue;
      if ((begin[i] += cuts[i].extent) < p.loops[i].extent) break;
      begin[i] = 0;
    }
  }
}

/// Computes out = the reduction over the dims of the plan. The result is row-major over the kept dims with their
/// allocated extents. For a reduced dim d, only indices below valid[d] count, and valid[d] >= 1. valid[d] is not read
/// for kept dims.
template <class Source>
void reduce_some(Source& source, const reduction_plan& p, const std::int64_t* valid, typename Source::position in,
                 typename Source::results out) {
  const auto bytes = source.elem_bytes();
  bool is_whole = true;  // except for the outermost reduced dim
  for (int i = p.first_reduced + 1; i < p.loops.count; ++i)
    if (p.loop_dim[i] >= 0 && valid[p.loop_dim[i]] != p.loops[i].extent) is_whole = false;
  if (!p.is_simple || !is_whole) return reduce_nested(source, p, valid, in, out);
  const auto rows = valid[p.loop_dim[p.first_reduced]] * p.row;
  const auto step = p.outermost * p.row * p.inner;
  if (p.inner <= source.piece() && rows * p.inner == step) source.lie_together(0, p.outer * step * bytes, p.outer * step * bytes);
  if (p.inner == 1) return reduce_each(source, in, p.outer, step, rows, out);
  for (std::int64_t o = 0; o < p.outer; ++o)
    reduce_rows(source, in + o * step * bytes, rows, p.inner, p.inner, out + o * p.inner * bytes, false);
}

/// The same for an array in memory. If a reduced dim has no valid index, the result is the identity.
inline void reduce(const reduction_kernel& kernel, const reduction_plan& p, const std::int64_t* valid, const void* from,
                   void* to) {
  if (p.out_elems == 0) return;
  const auto* const in = static_cast<const std::byte*>(from);
  auto* const out = static_cast<std::byte*>(to);
  const auto bytes = kernel.elem_bytes;
  bool is_empty = false;
  for (int i = 0; i < p.reduced.count; ++i) is_empty = is_empty || valid[p.reduced[i]] <= 0;
  if (is_empty) {
    for (std::int64_t i = 0; i < p.out_elems; ++i)
      std::memcpy(out + i * bytes, kernel.identity.data(), static_cast<std::size_t>(bytes));
  } else if (p.first_reduced < 0) {
    std::memcpy(out, in, static_cast<std::size_t>(p.out_elems * bytes));
  } else {
    stored_elements source{kernel};
    reduce_some(source, p, valid, in, out);
  }
}

/// Returns the kernel for elements of type T. The kind must be defined on T (monoid_is_defined).
template <class T>
const reduction_kernel& reduction_kernel_for(monoid kind) {
  return with_monoid(kind, [](auto given) -> const reduction_kernel& {
    constexpr monoid natural = natural_kind<T>(decltype(given)::value);
    if constexpr (monoid_is_defined<T>(natural)) return reduction_kernel_of<natural, T>;
    else return reduction_kernel_of<monoid::add, T>;
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
