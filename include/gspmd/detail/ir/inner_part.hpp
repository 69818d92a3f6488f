// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// A loop in two parts. The interior is a box that needs no elements of some margins, and is computed while the margins
/// are exchanged. The rest of the loop is the boundary.
namespace gspmd::detail {

/// The distances from the ends of a loop dim at which elements stop needing the margins.
struct part_side {
  std::int8_t dim = 0;
  std::int64_t low = 0, high = 0;
  friend constexpr bool operator==(const part_side&, const part_side&) = default;
};
inline constexpr int max_part_dims = 4;

struct inner_part {
  inline_vec<part_side, max_part_dims> sides;
  std::int64_t most_elems = 0;  // of the box, in whole indices of the first dim; 0: unlimited

  /// Widens the boundary for a load at offset `by`. Returns false if there are too many dims.
  constexpr bool need(int dim, std::int64_t by) {
    int k = 0;
    while (k < sides.count && sides[k].dim != dim) ++k;
    if (k == max_part_dims) return false;
    if (k == sides.count) sides.push_back({static_cast<std::int8_t>(dim), 0, 0});
    auto& side = by < 0 ? sides[k].low : sides[k].high;
    if (side < (by < 0 ? -by : by)) side = by < 0 ? -by : by;
    return true;
  }
  friend constexpr bool operator==(const inner_part&, const inner_part&) = default;
};

/// A part of a loop: from `begin` to `end` along each dim.
struct loop_box {
  extents begin, end;

  constexpr explicit loop_box(const extents& loop) : begin(loop.count, 0), end(loop) {}
  [[nodiscard]] constexpr extents size() const {
    extents n = end;
    for (int d = 0; d < n.count; ++d) n[d] -= begin[d];
    return n;
  }
  [[nodiscard]] constexpr bool any() const {
    for (int d = 0; d < end.count; ++d)
      if (begin[d] >= end[d]) return false;
    return true;
  }
};

/// Returns the interior of a loop, which is empty if the loop is too thin.
constexpr loop_box inner_box(const inner_part& part, const extents& loop) {
  loop_box box(loop);
  for (const auto& side : part.sides) {
    box.begin[side.dim] = side.low;
    box.end[side.dim] -= side.high;
  }
  if (!box.any()) {
    box.end = box.begin = extents(loop.count, 0);
    return box;
  }
  if (part.most_elems > 0) {
    const auto rows = box.end[0] - box.begin[0], most = part.most_elems / (elements(box.size()) / rows);
    if (most < rows) box.end[0] = box.begin[0] + (most > 0 ? most : 1);
  }
  return box;
}

/// Calls visit(box) for the boxes that form the boundary of a loop: along each dim the boxes before and after the
/// interior.
template <class Visit>
constexpr void for_each_rim_box(const inner_part& part, const extents& loop, Visit visit) {
  const loop_box inner = inner_box(part, loop);
  loop_box box(loop);
  if (!inner.any()) return visit(box);
  for (int d = 0; d < loop.count; ++d) {
    for (const bool is_low : {true, false}) {
      box.begin[d] = is_low ? 0 : inner.end[d];
      box.end[d] = is_low ? inner.begin[d] : loop[d];
      if (box.begin[d] < box.end[d]) visit(box);
    }
    box.begin[d] = inner.begin[d];
    box.end[d] = inner.end[d];
  }
}

}  // namespace gspmd::detail
