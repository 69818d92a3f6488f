// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/kernels/fused_static.hpp"
#include "gspmd/detail/transport/device_memory.hpp"

namespace gspmd::detail {

inline constexpr scalar_op placed_later{};

/// Sets the addresses of a loop's loads and stores with user-provided strides. It is called at the begin of each
/// piece of the loop (see fused_rows_runner).
inline void place_given_rows(const given_rows& given, void* of_loop) {
  auto& loop = *static_cast<fused_rows_runner*>(of_loop);
  const auto first_of = [&loop](const extents& strides) {
    std::int64_t offset = 0;
    for (int d = 0; d <= loop.last; ++d) offset += loop.index[d] * strides[d];
    return offset;
  };
  std::size_t load = 0;
  for (const scalar_op& o : loop.group.ops) {
    if (!o.is_load()) continue;
    const auto n = load++;
    if (o.given == 0) continue;
    const extents& strides = given.strides[o.given - 1];
    auto offset = first_of(strides);
    for (const auto& along : o.offsets) offset += along.by * strides[along.dim];
    loop.at.from[n] = static_cast<const std::byte*>(loop.inputs[o.slot]) + offset * bytes_of(o.type);
    loop.at.from_step[n] = loop.next < 0 ? 0 : strides[loop.next] * bytes_of(o.type);
  }
  for (std::size_t k = 0; k < loop.group.stores.size(); ++k) {
    const auto& s = loop.group.stores[k];
    if (s.given == 0) continue;
    const extents& strides = given.strides[s.given - 1];
    const auto bytes = bytes_of(loop.group.ops[static_cast<std::size_t>(s.op)].type);
    loop.at.to[k] = static_cast<std::byte*>(loop.outputs[s.slot]) + first_of(strides) * bytes;
    loop.at.to_step[k] = loop.next < 0 ? 0 : strides[loop.next] * bytes;
  }
}

}  // namespace gspmd::detail
