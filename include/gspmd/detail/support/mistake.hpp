// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// The rule that a program breaks. The compiler's error carries the rule in words (refuse.hpp), the computed text names the
/// operator, the dim or axis, the numbers and the way out.
enum class mistake : std::uint8_t {
  none,
  other,
  equation,  // the text of an einsum equation
  operand_count,
  rank,
  extent,
  size,  // more bytes than can be counted, or an extent below 0
  type,
  number,           // one that its tensor's type does not hold
  dim,              // a dim that is not there, or named twice
  element_count,    // reshape
  bounds,           // what pad or slice takes or leaves
  radius,           // of a stencil
  window,           // a size, stride or dilation below 1, or a window larger than what it is laid over
  layout,           // of a convolution, or its groups
  annotation_rank,  // a sharding with another number of dims than its tensor
  unknown_axis,
  axis_used_twice,
  xla_sharding,   // XLA's text
  placement,      // a placement list that no sharding is, or a sharding that no list is
  parts,          // a number of parts that no mesh axes give
  communication,  // where the user forbade it
  replication,    // where the user did not allow it
  gather_limit,   // more than the user allows
  memory,         // of a device: no plan is known that fits
  no_derivative,
  no_scalar_loss,
  region,  // a loop or conditional
  states,  // what devices hold does not go together, or would move and nobody asked for it
  rule,    // the text of a local_op's rule
  law,     // a local_op's function does not do what its rule says
  facts,   // two facts of an operator's struct contradict each other
  inputs,  // what compile is given
  mesh_axes,
  device_order,
  mesh_views,
  network,
  shard,      // what a step is given
  arguments,  // of run or scatter: their number and element types
  budget,
  collectives,  // other than the program is said to have
  reported,     // the compiler has said it already
};

}  // namespace gspmd::detail
