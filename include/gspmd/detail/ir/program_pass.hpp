// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/detail/ir/graph.hpp"

/// The passes that change a program between its trace and its plan. The library has a list of such passes
/// (passes/list/program_to_plan.hpp). Functions that a program calls can add other passes to the program
/// (ir/add_pass.hpp).
namespace gspmd::detail {

/// The position of a pass between the trace of a program and its plan. At each position, the passes of the library run
/// first. Then the passes that the program carries run, in the order of add_pass.
enum class pass_position : std::uint8_t {
  as_written,  // the nodes are those of the trace. Only checks: a pass here does not change the program
  in_order,    // operands precede their users, equal nodes are one node, and no node is unused
  annotated,   // types and manual regions have become annotations, so completion can infer shardings
  composed,    // consecutive movements are one movement
  settled,     // the order of the nodes is final
  completed,   // completion has inferred the sharding of every value: run(g, shardings)
};

/// The state of the nodes after a pass. If it is `changed`, the library restores the order: operands precede their
/// users, and no node is unused.
enum class node_order : bool { kept, changed };

/// The facts of a pass as one constant. `run` depends on the position.
struct program_pass {
  const char* name;
  std::string_view type;  // identifies the pass
  pass_position position;
  bool reads_movements;
  bool (*applies)(const graph& g);
  node_order (*run)(graph& g);
  node_order (*run_completed)(graph& g, const vec<sharding>& shardings);
};

/// The base of passes for which movements may be composed before.
struct plain_pass {
  static constexpr bool reads_movements = false;
};

}  // namespace gspmd::detail
