// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/operator.hpp"

namespace gspmd::detail {

/// The second, third, ... result of the operator before it. The facts are those of that operator: its rule has a map
/// for each result. The sharding of a further result is chosen with that operator, and its gradient is read there.
struct further_result_op : named_by_opcode, plain_operator, same_dims, without_steps, names_no_dims {
  static constexpr bool owns(const operator_code& op) { return op == opcode::result; }
  static constexpr origin made = origin::result;
  static constexpr realisation runs = realisation::steps;

  static constexpr void gradient(gradient_builder&, const node&) {}
};

}  // namespace gspmd::detail
