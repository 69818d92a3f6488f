// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/sources.hpp"

namespace gspmd::detail {

/// The inputs of the program.
struct parameter_op : named_by_opcode, plain_operator, same_dims, without_steps, names_no_dims {
  static constexpr bool owns(const operator_code& op) { return op == opcode::parameter; }
  static constexpr origin made = origin::given;
  static constexpr realisation runs = realisation::steps;

  static constexpr void gradient(gradient_builder&, const node&) {}
};

/// Constants and iotas: tensors that each device computes from its position on the mesh, without communication. Every
/// dim may be split.
struct source_op : named_by_opcode,
                   plain_operator,
                   same_dims,
                   reduced_first,
                   without_movements,
                   reads_shards,
                   without_arithmetic,
                   dims_by_number {
  static constexpr leading_dim leading{.count = 1};
  static constexpr bool owns(const operator_code& op) { return op == opcode::constant || op == opcode::iota; }
  static constexpr origin made = origin::source;
  static constexpr realisation runs = realisation::strides;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};

  static constexpr scalar_op in_loop(const graph&, const node& n) {
    scalar_op s = scalar_op::constant(n.type, n.real, n.integer);
    s.op = scalar_code(n.op.code);
    if (s.is_index()) s.dim = static_cast<std::int8_t>(attribute_dim(n, 0));
    return s;
  }
  static constexpr dim_places lies_along(const graph&, const node&) { return {}; }
  static constexpr void gradient(gradient_builder&, const node&) {}
  static constexpr void lower(lowering&, const instruction&) {}
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

}  // namespace gspmd::detail
