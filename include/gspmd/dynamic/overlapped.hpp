// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/order/hide_collectives.hpp"
#include "gspmd/dynamic/mesh.hpp"

namespace gspmd::dynamic {

/// Returns the mesh with overlap: devices compute while collectives are under way. See gspmd::overlapped.
///
/// **Example.**
///
///     const auto p = dynamic::compile(train, dynamic::overlapped(m), x, w);
inline mesh overlapped(const mesh& m) {
  auto asked = m.info().request;
  asked.hide = detail::hide_collectives;
  return m.with_request(asked);
}

}  // namespace gspmd::dynamic
