// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/ops/sources.hpp"

namespace gspmd::detail {

/// The inputs of the program.
struct parameter_op {
  static constexpr bool owns(opcode op) { return op == opcode::parameter; }
  static constexpr origin made = origin::given;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = true;
  static constexpr bool keeps_slices = true;
  static constexpr bool may_cut_axes = false;
  static constexpr replication_words replication = ordinary_replication;

  static constexpr void rule(const graph&, const node& n, op_rule& r) { uniform_rule(n.shape, r); }
  static constexpr partial_rule partial(const node&, int, monoid) { return partial_rule::none; }
  static constexpr int reads(const node& n) { return n.operands.count; }
  static constexpr bool is_made_again(const node&) { return false; }
  static constexpr bool may_go_round_ring(const node&) { return false; }
  static constexpr int movements(const node&) { return 0; }
  static constexpr index_map map(const graph&, const node&, int) { return {}; }
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program&, const local_op&) { return 0; }
  static constexpr scalar_op in_loop(const graph&, const node&) { return {}; }
  static constexpr dim_places lies_along(const graph&, const node&) { return {}; }
  static constexpr void name_dim(text&, const graph&, const node&, int, int) {}
  static constexpr void gradient(gradient_builder&, const node&) {}
  static constexpr void lower(lowering&, const local_op&) {}
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

/// Tensors that every device computes from its place on the mesh: constants, and indices.
struct source_op {
  static constexpr bool owns(opcode op) { return op == opcode::constant || op == opcode::iota; }
  static constexpr origin made = origin::source;
  static constexpr realisation runs = realisation::strides;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = true;
  static constexpr bool keeps_slices = true;
  static constexpr bool may_cut_axes = false;
  static constexpr replication_words replication = ordinary_replication;

  static constexpr void rule(const graph&, const node& n, op_rule& r) { uniform_rule(n.shape, r); }
  static constexpr partial_rule partial(const node&, int, monoid) { return partial_rule::none; }
  static constexpr int reads(const node& n) { return n.operands.count; }
  static constexpr bool is_made_again(const node&) { return false; }
  static constexpr bool may_go_round_ring(const node&) { return false; }
  static constexpr int movements(const node&) { return 0; }
  static constexpr index_map map(const graph&, const node&, int) { return {}; }
  static constexpr std::int64_t flops(const graph&, const mesh_shape&, const local_program&, const local_op&) { return 0; }
  static constexpr scalar_op in_loop(const graph&, const node& n) {
    scalar_op s = scalar_op::constant(n.type, n.real, n.integer);
    s.op = n.op;
    if (s.is_index()) s.dim = static_cast<std::int8_t>(n.attributes[0]);
    return s;
  }
  static constexpr dim_places lies_along(const graph&, const node&) { return {}; }
  static constexpr void name_dim(text&, const graph&, const node&, int, int) {}
  static constexpr void gradient(gradient_builder&, const node&) {}
  static constexpr void lower(lowering&, const local_op&) {}
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

}  // namespace gspmd::detail
