// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/collective_time.hpp"
#include "gspmd/detail/passes/ghost/sweep.hpp"
#include "gspmd/detail/support/tuning.hpp"

namespace gspmd::detail {

/// What a round takes: its exchanges, and its sweeps on all of the blocks. To copy an element takes what an operator takes.
constexpr std::int64_t time_of_round(const ghost_sweep& s, std::int64_t sweeps) {
  const ghost_round round = s.round_of(sweeps);
  const network_rates& net = s.mesh.network;
  std::int64_t fields = 0, bytes_of_all = 0, computed = 0;
  for (const int i : s.body) {
    const node& n = s.at(i);
    if (n.shape.count == 0) continue;
    if (n.op == opcode::carry) {
      ++fields;
      bytes_of_all += bytes_of(n.type);
    } else if (s.varies[i] != 0 && ghost_sweep::is_computed_in_loops(n)) {
      ++computed;
    }
  }
  const extents shard = local_extents(s.mesh, s.shape, s.layout);
  std::int64_t block = elements(shard), time = 0;
  for (const auto& b : round.blocks) {
    const auto line = block / b.size();
    const auto bytes = saturating_multiply(saturating_multiply(line, b.low + b.high), bytes_of_all);
    const auto axes = s.layout.axes_of(b.dim);
    time = add_times(time, time_of_collective(s.mesh, collective_kind::collective_permute, axes, bytes));
    block = saturating_multiply(line, b.width());
  }
  if (sweeps > 1) time = add_times(time, net.time_of_flops(saturating_multiply(block, 2 * fields)));  // into blocks, and back
  return add_times(time, multiply_time(net.time_of_flops(saturating_multiply(block, computed)), sweeps));
}

/// How many sweeps on one exchange are fastest on the mesh's network.
constexpr std::int64_t fastest_sweeps(const ghost_sweep& s) {
  const auto trips = s.at(s.loop).integer;
  std::int64_t best = 1, least = most_picoseconds;
  for (std::int64_t k = 1; k <= trips && k <= most_ghost_sweeps; ++k) {
    auto time = multiply_time(time_of_round(s, k), trips / k);
    if (trips % k > 0) time = add_times(time, time_of_round(s, trips % k));
    if (time >= least) continue;
    best = k;
    least = time;
  }
  return best;
}

}  // namespace gspmd::detail
