// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/collective_time.hpp"
#include "gspmd/detail/passes/ghost/reach.hpp"
#include "gspmd/detail/support/tuning.hpp"

namespace gspmd::detail {

/// Returns the time of a round: its exchanges, and its sweeps on the whole blocks. Blocks that are small enough for
/// several sweeps are in a cache, so memory traffic does not count: copying an element takes as long as an operator.
constexpr std::int64_t time_of_round(const ghost_reach& reach, std::int64_t sweeps) {
  const ghost_sweep& s = reach.sweep;
  const ghost_round round = reach.round_of(sweeps);
  const network_rates& net = s.program.mesh->request.network;
  std::int64_t fields = 0, computed = 0;
  for (const int i : s.body) {
    if (s.at(i).shape.count == 0 || s.varies[i] == 0) continue;
    fields += s.at(i).op == opcode::carry ? 1 : 0;
    computed += ghost_sweep::is_computed_in_loops(s.at(i)) ? 1 : 0;
  }
  std::int64_t block = elements(local_extents(s.mesh, s.shape, s.layout)), time = 0;
  for (std::size_t b = 0; b < round.blocks.size(); ++b) {
    const ghost_blocks& along = round.blocks[b];
    const auto line = block / along.size();
    for (std::int64_t l = 0; l < fields; ++l) {
      const auto& need = round.needs[static_cast<std::size_t>(l) * round.blocks.size() + b];
      const auto bytes = saturating_multiply(line, need.size() * bytes_of(s.at(reach.leaves[static_cast<std::size_t>(l)]).type));
      time = add_times(time,
                       time_of_collective(s.mesh, net, collective_kind::collective_permute, s.layout.axes_of(along.dim), bytes));
    }
    block = saturating_multiply(line, along.width());
  }
  if (sweeps > 1) time = add_times(time, net.time_of({saturating_multiply(block, 2 * fields), 0}));  // into blocks, and back
  return add_times(time, multiply_time(net.time_of({saturating_multiply(block, computed), 0}), sweeps));
}

/// Returns the number of sweeps per exchange that is fastest on the mesh's network.
constexpr std::int64_t fastest_sweeps(const ghost_reach& reach) {
  const auto trips = reach.sweep.at(reach.sweep.loop).integer;
  std::int64_t best = 1, least = most_picoseconds;
  for (std::int64_t k = 1; k <= trips && k <= most_ghost_sweeps; ++k) {
    auto time = multiply_time(time_of_round(reach, k), trips / k);
    if (trips % k > 0) time = add_times(time, time_of_round(reach, trips % k));
    if (time >= least) continue;
    best = k;
    least = time;
  }
  return best;
}

}  // namespace gspmd::detail
