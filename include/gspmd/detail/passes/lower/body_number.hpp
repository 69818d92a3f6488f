// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Numbers the bodies of a local program while its instructions are visited in order. The number is 0 outside of all
/// bodies. Each loop body and each branch has another number. Values that are added in one body, such as margins,
/// cannot be read in another body.
class body_number {
 public:
  /// Returns true if an instruction begins or ends a body. now() is then the number of the body of the next
  /// instruction.
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
  vec<int> around_;  // the numbers of the enclosing bodies
};

}  // namespace gspmd::detail
