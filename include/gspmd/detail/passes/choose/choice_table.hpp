// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/passes/choose/reshard.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The choice for a node. Of inputs, of what a loop carries or a conditional gives, and of a reshard only the sharding counts.
struct node_choice {
  sharding result;
  int wanted = 0;            // of an operator: where the shardings of its operands begin in the table
  std::uint32_t forced = 0;  // by operand: the operator cannot keep a split that the operand was to have
  axis_mask lost = 0;        // the axes of these splits
  ring_einsum ring;
  bool moved = false;  // a movement takes the place of the operator
};

/// The path of a reshard, by which a value gets a sharding: from the form with this number, by so many steps of the table. Without a form
/// to start from the value is made anew: a source, or an operator that is_made_again.
struct reshard_path {
  int from = -1;
  int step = 0, steps = 0;
};

/// The decisions of choose, which emit carries out. Paths stand in the order in which values are asked for; forms are numbered in the
/// order in which they are made.
struct choice_table {
  vec<node_choice> nodes;
  vec<sharding> wanted;
  vec<reshard_path> paths;
  vec<reshard_step> steps;
  vec<sharding> outputs;
  bool as_written = false;  // no reshard is deferred (defer_reshards.hpp)
};

}  // namespace gspmd::detail
