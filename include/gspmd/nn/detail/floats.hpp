// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/elementwise_node.hpp"
#include "gspmd/program/program.hpp"

namespace gspmd::detail {

/// Returns true if the elements of `x` are real floats. Otherwise records an error of `op`.
constexpr bool has_floats(value x, const char* op, location at) {
  if (is_floating(x.type()) && !is_complex(x.type())) return true;
  x.graph()->fail(at, op, mistake::type,
                  text("the operand is ") << name_of(x.type()) << shape_text(x.shape())
                                          << "; its elements must be real floats, for example cast<float>(x)");
  return false;
}

}  // namespace gspmd::detail
