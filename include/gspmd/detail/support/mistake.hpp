// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// The rule that a program breaks. The compiler's error has the rule in words (refuse.hpp). The computed text has the
/// operator, the dim or axis, the numbers and the remedy.
enum class mistake : std::uint8_t {
  none,
  other,
  equation,  // the text of an einsum equation
  operand_count,
  rank,
  extent,
  size,  // more than 2^60 bytes, or an extent below 0
  type,
  number,           // the element type of the tensor cannot hold the number
  dim,              // a dim that does not exist, or is named twice
  element_count,    // reshape
  bounds,           // of a pad, slice or dynamic slice, or of top_k
  radius,           // of a stencil
  window,           // a size, stride or dilation below 1, or a window larger than its dim
  layout,           // of a convolution, or its groups
  annotation_rank,  // a sharding with another number of dims than its tensor
  unknown_axis,
  axis_used_twice,
  xla_sharding,   // XLA's text
  placement,      // a placement list that is no sharding, or a sharding that is no list
  parts,          // a number of parts that no mesh axes have
  communication,  // although the user forbade it
  replication,    // although the user did not allow it
  gather_limit,   // more than the user allows
  memory,         // of a device: no known plan fits
  no_derivative,
  no_scalar_loss,
  region,  // a loop or conditional
  states,  // states of devices that do not match, or communication that was not written
  rule,    // the text of a local_op's rule
  law,     // a local_op's function contradicts its rule
  facts,   // two facts of an operator's struct contradict each other
  inputs,  // the inputs of compile
  mesh_axes,
  device_order,
  mesh_views,
  network,
  shard,      // the shards that are passed to a step
  arguments,  // of run or distribute: their number and element types
  budget,
  collectives,  // other collectives than specified
  reported,     // the compiler has reported the mistake
};

}  // namespace gspmd::detail
