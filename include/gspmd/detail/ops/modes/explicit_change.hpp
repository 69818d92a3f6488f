// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/ops/reshard.hpp"

namespace gspmd::detail {

/// Replaces a reshard of explicit axes while the automatic axes of the mesh are planned. The planner may use the
/// automatic axes on the value, except along the dims that the reshard moves. No plan contains this operator.
///
/// **Shapes.** x -> the shape of x. **Splits.** The moved dims are whole. The other dims may be split.
struct explicit_change_op : plain_operator,
                            without_movements,
                            reads_shards,
                            without_arithmetic,
                            outside_of_loops,
                            dims_by_number {
  static constexpr const char* name = "reshard";
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = false;
  static constexpr bool keeps_slices = false;
  static constexpr leading_dim leading{.is = leading_dim::way::refused};

  /// `moved` is the dims whose explicit axes change. If `is_linear`, a partial sum may stay partial.
  static constexpr void keep(node& n, dim_mask moved, bool is_linear) {
    n.attributes.clear();
    add_attributes(n, moved, is_linear);
    n.allow_replication = true;  // the user wrote the reshard, so replication is allowed
  }
  static constexpr operator_class meets(const node& n, monoid kind) {
    return {n.attributes[1] != 0 && kind == monoid::add ? partial_class::all : partial_class::none};
  }
  static constexpr void rule(const graph&, const node& n, op_rule& rule) {
    tensor_map dims;
    for (int d = 0; d < n.shape.count; ++d) {
      const bool is_moved = (static_cast<dim_mask>(n.attributes[0]) & dim_bit(d)) != 0;
      dims.begin_dim();
      dims.add_factor(rule.add_factor(n.shape[d], is_moved ? factor_kind::whole : factor_kind::parallel));
    }
    rule.maps.push_back(dims);
    rule.maps.push_back(dims);
  }
  static constexpr void gradient(gradient_builder&, const node&) {}
  static constexpr void lower(lowering&, const instruction&) {}
  static void describe(std::string&, const plan_view&, const plan_step*) {}
};

constexpr bool is_explicit_change(const node& n) { return n.op == code_of<explicit_change_op>; }
/// Replaces the operator of a node with one operand by a reshard that moves these dims.
constexpr void make_explicit_change(node& n, dim_mask moved, bool is_linear) {
  n.op = code_of<explicit_change_op>;
  explicit_change_op::keep(n, moved, is_linear);
}
/// Turns a node into the identity on its first operand. The caller keeps the transition of the node, if it has one.
constexpr void make_reshard(node& n) {
  if (n.operands.count > 1) n.operands.count = 1;
  n.op = code_of<reshard_op>;
  n.attributes.clear();
}
/// Returns true if a node is a shard_alike: it names a value and gets the sharding of another value.
constexpr bool names_alike(const node& n) { return n.op == code_of<shard_alike_op>; }

}  // namespace gspmd::detail
