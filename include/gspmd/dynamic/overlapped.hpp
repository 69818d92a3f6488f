// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/order/hide_collectives.hpp"
#include "gspmd/dynamic/mesh.hpp"

namespace gspmd::dynamic {

/// Returns the same mesh, whose devices compute while collectives are under way: see gspmd::overlapped.
///
///     const auto p = dynamic::compile(train, dynamic::overlapped(m), x, w);
inline mesh overlapped(const mesh& m) {
  auto asked = m.info().request;
  asked.hide = detail::hide_collectives;
  return m.with_request(asked);
}

}  // namespace gspmd::dynamic
