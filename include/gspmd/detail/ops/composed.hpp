// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/composed_map.hpp"
#include "gspmd/detail/ops/mapped.hpp"

namespace gspmd::detail {

/// Tries to fuse `first` into `second`, so that `second` reads the operand of `first` (shape `from`). Returns false and
/// changes nothing if the two maps do not compose into one map with one fill value.
constexpr bool compose(node& second, const node& first, const extents& from);

/// Several of pad, slice, reverse and roll, fused into one movement.
///
/// **Shapes.** Any extents with the rank of the operand. **Splits.** Every dim may be split; along a moved dim the
/// devices exchange elements.
struct composed_op : mapped_op<composed_op> {
  static constexpr const char* name = "move";
  static constexpr operator_code inverse() { return code_of<composed_op>; }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    describe_dims(t, plan, step, [&](const dim_map& d, std::int64_t, std::int64_t) { t += ": " + text_of(d); });
  }

 private:
  /// Returns the index of the operand's element that becomes element i of the result: `i - 1`, `(-2i + 5) / 3`.
  static std::string text_of(const dim_map& d) {
    const auto at_0 = d.from_first * d.to_step - d.from_step * d.to_first;
    std::string t = d.from_step == 1 ? "i" : d.from_step == -1 ? "-i" : std::to_string(d.from_step) + "i";
    if (at_0 != 0) t += (at_0 < 0 ? " - " : " + ") + std::to_string(at_0 < 0 ? -at_0 : at_0);
    if (d.to_step > 1) t = '(' + t + ") / " + std::to_string(d.to_step);
    return d.beyond == continuation::round ? t + ", round" : t;
  }
};

constexpr bool compose(node& second, const node& first, const extents& from) {
  const auto before = maps_of(first), after = maps_of(second);
  const auto along = [](const auto& maps, int dim) {
    for (const auto& map : maps)
      if (map.dim == dim) return map;
    return dim_map::affine(dim, 1, 0, 1);
  };
  inline_vec<dim_map, max_mapped_dims> dims;
  bool shows_first = false, shows_second = false;
  for (int d = 0; d < from.count; ++d) {
    const composed_extents e{from[d], first.shape[d], second.shape[d]};
    const composed_dim both = composed(along(before, d), along(after, d), e);
    if (!both.is_possible) return false;
    shows_first = shows_first || both.shows_first_fill;
    shows_second = shows_second || both.shows_second_fill;
    if (both.is_identity(e)) continue;
    if (dims.count == max_mapped_dims) return false;
    dims.push_back(both.map);
  }
  if (shows_first && shows_second &&
      bits_of(first.type, first.real, first.integer) != bits_of(second.type, second.real, second.integer))
    return false;
  if (shows_first) {
    second.real = first.real;
    second.integer = first.integer;
  }
  second.operands[0] = first.operands[0];
  second.attributes.clear();
  second.op = dims.empty() ? code_of<reshape_op> : code_of<composed_op>;
  for (const auto& map : dims) keep_map(second, map);
  return true;
}

}  // namespace gspmd::detail
