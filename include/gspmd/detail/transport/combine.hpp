// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/kernels/combine_rows.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/support/tuning.hpp"

/// Combines rows of several buffers by a monoid, always in the order of the sources, so every backend and device gets
/// the same bits.
namespace gspmd::detail {

/// A reference to a function from the number of a member to the buffer of the member. Its type does not depend on the
/// type of the function, so code that uses it is compiled once and not for each communicator.
template <class Pointer>
class peer_buffers {
 public:
  template <class F>
  peer_buffers(const F& buffer_of)  // NOLINT(google-explicit-constructor): any such function will do
      : f_(&buffer_of), call_([](const void* of, std::int64_t j) -> Pointer { return (*static_cast<const F*>(of))(j); }) {}
  Pointer operator()(std::int64_t j) const { return call_(f_, j); }

 private:
  const void* f_;
  Pointer (*call_)(const void*, std::int64_t);
};
using peer_inputs = peer_buffers<const void*>;
using peer_outputs = peer_buffers<void*>;

inline namespace GSPMD_TARGET {

/// Does the same as reduce_row, for narrow floats.
inline void reduce_row_wide(const row_combiner& op, std::byte* out, std::int64_t n, peer_inputs source, std::int64_t offset,
                            std::int64_t elems) {
  constexpr std::int64_t block = reduce_block_bytes / 4;
  alignas(cache_line_bytes) float sum[block];
  for (std::int64_t begin = 0; begin < elems; begin += block) {
    const auto count = elems - begin < block ? elems - begin : block;
    const auto row = [&](std::int64_t j) { return static_cast<const std::byte*>(source(j)) + offset + begin * op.elem_bytes; };
    op.wide->begin(sum, row(0), count);
    for (std::int64_t j = 1; j < n; ++j) op.wide->add(sum, row(j), count);
    op.wide->end(sum, out + begin * op.elem_bytes, count);
  }
}

/// Computes out = source(0) op source(1) op ... for rows of `n` >= 2 members. The row of member j begins `offset`
/// bytes after source(j). `out` must not be one of the rows.
inline void reduce_row(const row_combiner& op, void* out, std::int64_t n, peer_inputs source, std::int64_t offset,
                       std::int64_t elems, bool streaming) {
  const auto row = [&](std::int64_t j, std::int64_t begin) { return static_cast<const std::byte*>(source(j)) + offset + begin; };
  if (n == 2 && streaming && op.stream != nullptr) return op.stream(out, out, row(0, 0), row(1, 0), elems);
  if (n > 2 && op.wide != nullptr) return reduce_row_wide(op, static_cast<std::byte*>(out), n, source, offset, elems);
  const auto block = reduce_block_bytes / op.elem_bytes;
  for (std::int64_t begin = 0; begin < elems; begin += block) {
    const auto count = elems - begin < block ? elems - begin : block;
    auto* const part = static_cast<std::byte*>(out) + begin * op.elem_bytes;
    op.combine(part, part, row(0, begin * op.elem_bytes), row(1, begin * op.elem_bytes), count);
    for (std::int64_t j = 2; j < n; ++j) op.combine(part, part, part, row(j, begin * op.elem_bytes), count);
  }
}

/// Computes the same and writes the result `offset` bytes after target(j) of each of the `n` members. target(j) may
/// be source(j).
inline void reduce_row_to_all(const row_combiner& op, std::int64_t n, peer_inputs source, peer_outputs target,
                              std::int64_t offset, std::int64_t elems) {
  const auto to = [&](std::int64_t j) { return static_cast<std::byte*>(target(j)) + offset; };
  const auto from = [&](std::int64_t j) { return static_cast<const std::byte*>(source(j)) + offset; };
  if (n == 2) return op.combine(to(0), to(1), from(0), from(1), elems);
  const auto block = reduce_block_bytes / op.elem_bytes;
  alignas(cache_line_bytes) std::byte sum[reduce_block_bytes];
  for (std::int64_t begin = 0; begin < elems; begin += block) {
    const auto count = elems - begin < block ? elems - begin : block;
    const auto at = begin * op.elem_bytes;
    reduce_row(op, sum, n, source, offset + at, count, false);
    for (std::int64_t j = 0; j < n; ++j) std::memcpy(to(j) + at, sum, static_cast<std::size_t>(count * op.elem_bytes));
  }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
