// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/mapped.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Adds the operand with some dims reversed: element i of a reversed dim is element n - 1 - i.
constexpr int add_flip(graph& g, int operand, span<const int> turned, location at);

/// The operand with some dims reversed.
///
/// **Shapes.** x -> the shape of x. **Splits.** As in mapped_op. A split of a reversed dim is kept: part k and its
/// mirror image, counted from the end, exchange their elements.
struct flip_op : mapped_op<flip_op> {
  static constexpr const char* name = "flip";
  static constexpr operator_code inverse() { return code_of<flip_op>; }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    describe_dims(t, plan, step, [](const dim_map&, std::int64_t, std::int64_t) {});
  }
};

constexpr int add_flip(graph& g, int operand, span<const int> turned, location at) {
  if (operand < 0) return -1;
  const extents shape = g.nodes[static_cast<std::size_t>(operand)].shape;
  dim_mask named = 0;
  vec<dim_map> dims;
  for (const int d : turned) {
    if (d < 0 || d >= shape.count)
      return g.fail(at, "flip", mistake::dim,
                    text("dim ") << d << " is not a dim of " << shape_text(shape) << "; dims count from 0");
    if ((named & dim_bit(d)) != 0)
      return g.fail(at, "flip", mistake::dim, text("names dim ") << d << " of " << shape_text(shape) << " twice; name it once");
    named |= dim_bit(d);
    dims.push_back(dim_map::affine(d, -1, shape[d] - 1, 1));
  }
  return add_mapped(g, code_of<flip_op>, operand, shape, dims, 0, at);
}

}  // namespace gspmd::detail
