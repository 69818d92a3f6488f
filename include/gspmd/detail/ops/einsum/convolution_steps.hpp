// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/contraction_planner.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ops/einsum/windowed_einsum.hpp"

/// The steps of an einsum with windows on shards: gather the elements that the windows read into a tile, then contract.
namespace gspmd::detail {

/// Returns the extents of the letters on a device.
constexpr letter_extents local_extents_of(const local_program& p, const windowed_einsum& e, const instruction& op) {
  letter_extents all;
  for (int k = 0; k < 2; ++k) all.know(e.letters[k], p.value(op.operands[k]).local);
  all.know(e.letters[2], p.value(op.result).local);
  return all;
}

/// Sets `base` and `held` of a window whose operand has zeros between its elements (`w.base` > 1). The tile begins at
/// index `at`. Then index `held` and each `base`-th index after it have elements of the operand. Does nothing if the
/// positions differ between parts.
constexpr void find_elements(contraction_window& window, const window_dim& w, std::int64_t at, std::int64_t shard_outputs,
                             std::int64_t parts) {
  if (w.base == 1 || (parts > 1 && w.stride * shard_outputs % w.base != 0)) return;
  const auto remainder = [](std::int64_t n, std::int64_t by) { return (n % by + by) % by; };
  for (std::int64_t i = 0; i < w.base; ++i) {
    if (remainder(w.first() + w.step() * i, w.base) != 0) continue;
    window.base = 1;
    while (w.step() * window.base % w.base != 0) ++window.base;
    window.held = (at + i) % window.base;  // and each `base`-th index after it
    return;
  }
}

template <class Lowering>
constexpr void add_windowed_contraction(Lowering& l, const instruction& op) {
  const auto e = windowed_einsum_of(l.g, l.node_of(op));
  letter_extents extent;
  for (int k = 0; k < 2; ++k) extent.know(e.letters[k], l.value(op.operands[k]).local);
  extent.know(e.letters[2], l.value(op.result).local);
  const auto tile = l.tile(op, 0);

  contraction c;
  c.padded = 0;
  inline_vec<std::int8_t, max_letters> letters;
  const auto number_of = [&](std::int8_t letter) {
    const int known = place_of(letters, letter);
    if (known >= 0) return static_cast<std::int8_t>(known);
    letters.push_back(letter);
    c.extent.push_back(extent[letter]);
    return static_cast<std::int8_t>(letters.count - 1);
  };
  for (int d = 0; d < e.letters[0].count; ++d) {
    const auto letter = e.letters[0][d];
    if (!is_window(letter)) {
      c.lhs.push_back(number_of(letter));
      continue;
    }
    const auto& w = e.windows[window_of(letter)];
    auto inside = w.along.in_tile();
    inside.offset += tile.at[d];
    const auto held = l.value(tile.value).local[d];
    c.lhs.push_back(number_of(w.outer));
    // A window of one element needs no contraction_window.
    if (extent[w.inner] == 1 && inside.stride == 1 && inside.offset == 0 && held == extent[w.outer]) continue;
    contraction_window window{number_of(w.outer), number_of(w.inner), inside.offset, inside.stride, inside.dilation, held};
    find_elements(window, w.along, tile.at[d], extent[w.outer], parts_of(l.out.mesh, l.value(op.operands[0]).layout, d));
    c.windows.push_back(window);
  }
  for (const auto letter : e.letters[1]) c.rhs.push_back(number_of(letter));
  for (const auto letter : e.letters[2]) c.out.push_back(number_of(letter));
  for (int k = 0; k < 2; ++k) {
    const local_value& operand = l.value(op.operands[k]);
    const auto padded = padded_dims(l.out.mesh, operand.global, operand.layout);
    for (int d = 0; d < e.letters[k].count; ++d)
      if (!is_window(e.letters[k][d]) && (padded & dim_bit(d)) != 0) c.padded |= std::uint64_t{1} << number_of(e.letters[k][d]);
  }
  const int spec = l.planned(c);
  const int lhs = l.widened(op, tile.value), rhs = l.widened(op, op.operands[1]), sum = l.wide_result(op.result);
  auto& s = add_step<kernels::contract>(l, op, spec, {lhs, rhs}, {sum});
  for (int k = 0; k < 2; ++k)
    for (int d = 0; d < e.letters[k].count; ++d) {
      const auto letter = e.letters[k][d];
      if (!is_window(letter) && place_of(e.letters[2], letter) < 0) l.add_bound(s, number_of(letter), op.operands[k], d);
    }
  l.narrowed(op, sum, op.result);
}

}  // namespace gspmd::detail
