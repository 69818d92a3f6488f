// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/passes/choose/reshard.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The choice for a node. Inputs, reshards, carried values and results of conditionals use `result` only.
struct node_choice {
  sharding result;
  int wanted = 0;            // operator: index of the sharding of its first operand in choice_table::wanted
  std::uint32_t forced = 0;  // bit k: the operator cannot keep a split that operand k should have
  axis_mask lost = 0;        // the axes of the lost splits
  ring_einsum ring;
  bool moved = false;  // a movement replaces the operator
};

/// The path that brings a value to a sharding: `steps` entries of choice_table::steps, beginning at `step`, applied to
/// form `from`. If `from` is -1, the value is computed in that sharding: it is a source, or its operator is_made_again.
struct reshard_path {
  int from = -1;
  int step = 0, steps = 0;
};

/// The decisions of choose. emit carries them out. `paths` follows the requests of form_walk. Forms are
/// numbered in the order of their making.
struct choice_table {
  vec<node_choice> nodes;
  vec<sharding> wanted;
  vec<reshard_path> paths;
  vec<reshard_step> steps;
  vec<sharding> outputs;
  bool as_written = false;  // no reshard is deferred (defer_reshards.hpp)
};

}  // namespace gspmd::detail
