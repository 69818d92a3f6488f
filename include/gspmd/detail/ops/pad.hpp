// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/mapped.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Adds a padding. For each dim, `low` elements are added before those of the operand, `high` after them, and
/// `interior` between neighbours. A negative `low` or `high` removes elements.
constexpr int add_pad(graph& g, int operand, span<const std::int64_t> low, span<const std::int64_t> high,
                      span<const std::int64_t> interior, written_number value, location at);

/// The operand with elements added around and between its elements, or removed at the ends.
///
/// **Shapes.** [n] -> [low + (n - 1) (interior + 1) + 1 + high]. **Splits.** As in mapped_op: a split of a padded dim
/// is kept, and elements that belong to another part of the result are sent there.
struct pad_op : mapped_op<pad_op> {
  static constexpr const char* name = "pad";
  static constexpr operator_code inverse();
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    describe_dims(t, plan, step, [&](const dim_map& d, std::int64_t from, std::int64_t to) {
      const auto low = d.to_first - d.from_first * d.to_step;
      const auto within = from == 0 ? 0 : (from - 1) * d.to_step + 1;
      t += " by " + std::to_string(low) + " and " + std::to_string(to - within - low);
      if (d.to_step > 1) t += ", " + std::to_string(d.to_step - 1) + " between";
    });
  }
};

constexpr int add_pad(graph& g, int operand, span<const std::int64_t> low, span<const std::int64_t> high,
                      span<const std::int64_t> interior, written_number value, location at) {
  if (operand < 0) return -1;
  const extents from = g.nodes[static_cast<std::size_t>(operand)].shape;
  const dtype type = g.nodes[static_cast<std::size_t>(operand)].type;
  for (const auto& list : {low, high, interior})
    if (list.size() != static_cast<std::size_t>(from.count))
      return g.fail(at, "pad", mistake::rank,
                    text("names ") << static_cast<std::int64_t>(list.size()) << " numbers for the dims of " << shape_text(from)
                                   << "; low, high and interior have one for each dim");
  if (!value.fills(type)) return g.fail(at, "pad", mistake::number, number_problem(value, type));
  constexpr auto most = std::int64_t{1} << 60;
  extents shape = from;
  vec<dim_map> dims;
  for (int d = 0; d < from.count; ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (low[i] == 0 && high[i] == 0 && interior[i] == 0) continue;
    if (interior[i] < 0)
      return g.fail(at, "pad", mistake::bounds,
                    text("puts ") << interior[i] << " elements between those of dim " << d << " of " << shape_text(from)
                                  << "; interior is at least 0, and slice with a stride takes elements out");
    if (low[i] > most || low[i] < -most || high[i] > most || high[i] < -most || interior[i] > most)
      return g.fail(at, "pad", mistake::size,
                    text("adds more to dim ") << d << " of " << shape_text(from) << " than can be counted");
    const auto within = from[d] == 0 ? 0 : saturating_add(from[d], saturating_multiply(from[d] - 1, interior[i]));
    shape[d] = saturating_add(within, low[i] > 0 ? low[i] : 0);
    shape[d] = saturating_add(shape[d], high[i] > 0 ? high[i] : 0) + (low[i] < 0 ? low[i] : 0) + (high[i] < 0 ? high[i] : 0);
    if (shape[d] < 0)
      return g.fail(at, "pad", mistake::bounds,
                    text("adds ") << low[i] << " before and " << high[i] << " after the " << within << " elements of dim " << d
                                  << " of " << shape_text(from) << ": that leaves " << shape[d] << "; take away at most "
                                  << within);
    dims.push_back(dim_map::affine(d, 1, -low[i], interior[i] + 1));
  }
  return add_mapped(g, code_of<pad_op>, operand, shape, dims, value, at);
}

}  // namespace gspmd::detail

#include "gspmd/detail/ops/slice.hpp"  // defines `inverse` of pad and slice
