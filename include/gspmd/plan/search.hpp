// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/list/search_pass.hpp"
#include "gspmd/plan/options.hpp"

/// The option `search` of compiled programs. Include this header to use it.
///
/// **Example.**
///
///     using step = compile<layer, pod, with<options{.search = true}>, input<float, shape<64, 512>>, ...>;
///     // the gain of the search
///     static_assert(step::traffic.bytes < compile<layer, pod, input<...>...>::traffic.bytes);
namespace gspmd::detail {

template <class Mesh>
  requires(Mesh::device_count > 0)
inline constexpr bool has_search<Mesh> = true;

}  // namespace gspmd::detail
