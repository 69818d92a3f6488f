// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/vec.hpp"
#include "gspmd/external/detail/read_end.hpp"

/// Finds the indices that a program reads beyond the ends of its inputs, whose elements must be in ghost layers.
namespace gspmd::detail {

/// Finds the read ends of the first `count` inputs.
///
///   shift(x, 1, along(0))      reach 1 beyond the high end of dim 0 of x
constexpr void find_read_ends(const graph& g, input_ends* of, std::size_t count) {
  struct chain {
    int input = -1;
    bool has_constant = false;
    std::uint64_t constant = 0;
  };
  vec<chain> chains;
  chains.resize(g.nodes.size(), {});
  int input = 0;
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const node& n = g.nodes[i];
    const auto& facts = facts_of(n.op);
    if (facts.made == origin::given) chains[i].input = input++;
    if (facts.made == origin::renamed && n.operands.count > 0) {  // a reshard or shard_alike: the same elements
      chains[i] = chains[static_cast<std::size_t>(n.operands[0])];
      continue;
    }
    if (n.operands.count != 1 || facts.movements(n) != 1) continue;
    chain c = chains[static_cast<std::size_t>(n.operands[0])];
    if (c.input < 0 || c.input >= static_cast<int>(count)) continue;
    const index_map map = facts.map(g, n, 0);
    if (!moves_all_alike(map) || !(g.nodes[static_cast<std::size_t>(n.operands[0])].shape == n.shape)) continue;
    const auto& along = map.dims[0];
    const auto by = offset_of(along, n.shape[along.dim]);
    if (by != 0) {
      auto& end = of[static_cast<std::size_t>(c.input)][static_cast<std::size_t>(along.dim)][by < 0 ? 0 : 1];
      const bool is_constant = along.beyond == continuation::none;
      if (end.reach != 0 && (end.beyond != along.beyond || (is_constant && end.fill != map.fill))) end.differs = true;
      if (is_constant && c.has_constant && c.constant != map.fill) end.differs = true;  // in a corner
      end.beyond = along.beyond;
      end.fill = map.fill;
      if (const auto reach = by < 0 ? -by : by; end.reach < reach) end.reach = reach;
      if (is_constant) c.has_constant = true, c.constant = map.fill;
    }
    chains[i] = c;
  }
}

/// Returns true if find_read_ends found all reads of loops in the ghost layers of input `k`. Elements beyond an
/// unknown end are not filled.
constexpr bool are_reads_known(const plan_view& p, const input_ends& ends, std::size_t k) {
  for (const scalar_op& o : table_of<scalar_op>(p)) {
    if (!o.is_load() || o.given != static_cast<int>(k) + 1) continue;
    for (const auto& along : o.offsets)
      if ((along.by < 0 ? -along.by : along.by) > ends[static_cast<std::size_t>(along.dim)][along.by < 0 ? 0 : 1].reach)
        return false;
  }
  return true;
}

constexpr fillable fillable_input(const plan_view& p, const input_ends& ends, std::size_t k) {
  for (const auto& dim : ends)
    for (const auto& end : dim)
      if (end.differs) return fillable::ends_differ;
  return are_reads_known(p, ends, k) ? fillable::yes : fillable::not_known;
}

}  // namespace gspmd::detail
