// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/mapped.hpp"

namespace gspmd::detail {

/// Adds the operand with its elements moved by `by` indices along `dim`. Elements that pass the end continue at index
/// 0.
constexpr int add_roll(graph& g, int operand, std::int64_t by, int dim, location at);

/// The operand with its elements moved cyclically along one dim.
///
/// **Shapes.** x -> the shape of x. **Splits.** As in mapped_op. A split of the rolled dim is kept: devices exchange
/// the elements that cross the boundaries of shards, also from the last part to the first.
struct roll_op : mapped_op<roll_op> {
  static constexpr const char* name = "roll";
  static constexpr operator_code inverse() { return code_of<roll_op>; }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    describe_dims(t, plan, step, [&](const dim_map& d, std::int64_t size, std::int64_t) {
      t += " by " + std::to_string((d.to_first - d.from_first % size + size) % size);
    });
  }
};

constexpr int add_roll(graph& g, int operand, std::int64_t by, int dim, location at) {
  if (operand < 0) return -1;
  const extents shape = g.nodes[static_cast<std::size_t>(operand)].shape;
  if (dim < 0 || dim >= shape.count)
    return g.fail(at, "roll", mistake::dim,
                  text("dim ") << dim << " is not a dim of " << shape_text(shape) << "; dims count from 0");
  vec<dim_map> dims;
  const auto size = shape[dim];
  if (size > 1 && by % size != 0) {
    dims.push_back(dim_map::affine(dim, 1, by % size > 0 ? size - by % size : -(by % size), 1));
    dims.back().beyond = continuation::round;
  }
  return add_mapped(g, code_of<roll_op>, operand, shape, dims, 0, at);
}

}  // namespace gspmd::detail
