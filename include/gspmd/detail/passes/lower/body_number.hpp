// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The body in which the instructions of a local program stand, as they are gone through: 0 outside of all, and another number for every
/// body, of a branch each. What a body made may be read in no other one.
class body_number {
 public:
  /// Whether an instruction begins or ends a body; the number is then that of what follows it.
  constexpr bool passes(const graph& g, const instruction& op) {
    if (op.what != instruction_kind::control) return false;
    const opcode what = g.nodes[static_cast<std::size_t>(op.node)].op.code;
    const bool opens = what == opcode::loop || what == opcode::branch;
    if (opens) around_.push_back(now_);
    now_ = opens || what == opcode::otherwise ? ++last_ : around_.back();
    if (!opens && what != opcode::otherwise) around_.pop_back();
    return true;
  }
  [[nodiscard]] constexpr int now() const { return now_; }

 private:
  int now_ = 0, last_ = 0;
  vec<int> around_;  // the bodies around this one
};

}  // namespace gspmd::detail
