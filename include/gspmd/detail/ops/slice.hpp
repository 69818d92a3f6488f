// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/mapped.hpp"
#include "gspmd/detail/ops/pad.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Adds a slice. For each dim, it has the elements from `start` to before `limit`, with the step `stride`.
constexpr int add_slice(graph& g, int operand, span<const std::int64_t> start, span<const std::int64_t> limit,
                        span<const std::int64_t> stride, location at);

/// The elements of each dim from a start to an end, with a step.
///
/// **Shapes.** [n] -> [(limit - start) / stride, rounded up]. **Splits.** As in mapped_op. A split of a sliced dim is
/// kept: the result is split evenly, and elements that belong to another part are sent there.
struct slice_op : mapped_op<slice_op> {
  static constexpr const char* name = "slice";
  static constexpr operator_code inverse();
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    describe_dims(t, plan, step, [&](const dim_map& d, std::int64_t, std::int64_t to) {
      t += " from " + std::to_string(d.from_first) + " to " + std::to_string(d.from_first + (to - 1) * d.from_step + 1);
      if (d.from_step > 1) t += " by " + std::to_string(d.from_step);
      if (d.to_step > 1) t += ", " + std::to_string(d.to_step - 1) + " between";
    });
  }
};

constexpr int add_slice(graph& g, int operand, span<const std::int64_t> start, span<const std::int64_t> limit,
                        span<const std::int64_t> stride, location at) {
  if (operand < 0) return -1;
  const extents from = g.nodes[static_cast<std::size_t>(operand)].shape;
  for (const auto& list : {start, limit, stride})
    if (list.size() != static_cast<std::size_t>(from.count))
      return g.fail(at, "slice", mistake::rank,
                    text("names ") << static_cast<std::int64_t>(list.size()) << " numbers for the dims of " << shape_text(from)
                                   << "; start, limit and stride have one for each dim");
  extents shape = from;
  vec<dim_map> dims;
  for (int d = 0; d < from.count; ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (stride[i] < 1)
      return g.fail(at, "slice", mistake::bounds,
                    text("has a stride of ") << stride[i] << " along dim " << d << " of " << shape_text(from)
                                             << "; a stride is at least 1, and flip turns a dim round");
    if (start[i] < 0 || limit[i] < start[i] || limit[i] > from[d])
      return g.fail(at, "slice", mistake::bounds,
                    text("is from ") << start[i] << " to before " << limit[i] << " of dim " << d << " of " << shape_text(from)
                                     << ", which has the elements 0 to before " << from[d]
                                     << "; start is no less than 0, and limit no less than start and no more than the extent");
    shape[d] = (limit[i] - start[i]) / stride[i] + ((limit[i] - start[i]) % stride[i] == 0 ? 0 : 1);
    if (shape[d] == from[d]) continue;  // the whole dim
    dims.push_back(dim_map::affine(d, stride[i], start[i], 1));
  }
  return add_mapped(g, code_of<slice_op>, operand, shape, dims, 0, at);
}

constexpr operator_code slice_op::inverse() { return code_of<pad_op>; }
constexpr operator_code pad_op::inverse() { return code_of<slice_op>; }

}  // namespace gspmd::detail
