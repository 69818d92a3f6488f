// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <type_traits>

#include "gspmd/detail/ir/window.hpp"
#include "gspmd/detail/ops/operator.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/windows/detail/part_of_windows.hpp"

/// The common facts of operators with windows.
namespace gspmd::detail {

/// A window along a dim of a tensor, and the number of its outputs.
struct windowed_dim {
  int dim = 0;
  window_dim window;
  std::int64_t outputs = 0;
};

/// Returns the bits of the identity of the monoid.
constexpr std::uint64_t identity_bits(monoid kind, dtype type) {
  std::uint64_t bits = 0;
  with_element_type(type, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, float>) bits = std::bit_cast<std::uint32_t>(identity<T>(kind));
    else if constexpr (std::is_same_v<T, double>) bits = std::bit_cast<std::uint64_t>(identity<T>(kind));
    else if constexpr (is_float_element<T>) bits = identity<T>(kind).bits;
    else if constexpr (is_complex_element<T>) bits = 0;  // the identity of a sum
    else if constexpr (std::is_same_v<T, bool>) bits = identity<T>(kind) ? 1 : 0;
    else bits = static_cast<std::make_unsigned_t<T>>(identity<T>(kind));
  });
  return bits;
}

/// Adds a window to the attributes of an operator.
constexpr void keep_window(node& n, int dim, const window_dim& w) {
  for (const std::int64_t a : {std::int64_t{dim}, w.size, w.stride, w.dilation, w.offset, w.base}) n.attributes.push_back(a);
}
/// Returns the windows of an operator, from its attributes.
constexpr inline_vec<windowed_dim, max_mapped_dims> windows_of(const node& n) {
  inline_vec<windowed_dim, max_mapped_dims> windows;
  for (int i = 0; i < n.attributes.count; i += 6) {
    const std::int64_t* const a = n.attributes.items + i;
    windows.push_back({static_cast<int>(a[0]), {a[1], a[2], a[3], a[4], a[5]}, n.shape[static_cast<int>(a[0])]});
  }
  return windows;
}

/// The common facts of operators whose parts read a range of the operand through windows.
///
/// **Splits.** Every dim may be split and keeps its split. A device computes the outputs of its part. It receives the
/// elements that their windows read in the shards of its neighbours.
struct windowed_operator : plain_operator, without_movements, outside_of_loops, dims_by_number {
  static constexpr leading_dim leading{.step = 6, .count = max_mapped_dims};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool uniform = true;
  static constexpr bool keeps_slices = false;

  /// One factor for each dim, with the smallest extent of all tensors.
  static constexpr void rule(const graph& g, const node& n, op_rule& r) {
    extents least = n.shape;
    for (int k = 0; k < n.operands.count; ++k)
      for (int d = 0; d < least.count; ++d) least[d] = std::min(least[d], operand_of(g, n, k).shape[d]);
    uniform_rule(least, r);
  }
};

/// Adds bounds for padded dims of the result, because only the device can compute their valid part.
constexpr void note_padded(lowering& l, const instruction& op, plan_step& s) {
  const local_value& v = l.value(op.result);
  const dim_mask padded = padded_dims(l.out.mesh, v.global, v.layout);
  for (int d = 0; d < v.local.count; ++d)
    if ((padded & dim_bit(d)) != 0) l.add_bound(s, d, op.result, d);
}

}  // namespace gspmd::detail
