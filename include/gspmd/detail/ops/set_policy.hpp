// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ops/registry.hpp"

namespace gspmd::detail {

/// The policy that a user sets for all operators of a function; see with_policy. Default members change nothing.
struct policy {
  friend constexpr bool operator==(const policy&, const policy&) = default;

  bool forbid_reshard = false;     // as forbid_reshard around each operator
  bool allow_replication = false;  // as allow_replication around each operator
  std::int64_t limit_gather = -1;  // bytes, as limit_gather around each einsum with two operands; -1: no limit
  bool keep_split = false;         // as keep_split around each operator
  bool keep_partial = false;       // as keep_partial around each operator
};

/// Returns the policy that a user set for an operator.
constexpr policy policy_of(const node& n) {
  return {n.forbid_reshard, n.allow_replication, n.gather_limit, n.keep_split, n.keep_partial};
}

/// Sets a policy for the operators on shards, from node `first` on. Their own settings stay.
constexpr void set_policy(graph& g, std::size_t first, const policy& p) {
  for (std::size_t i = first; i < g.nodes.size(); ++i) {
    node& n = g.nodes[i];
    if (facts_of(n.op).made != origin::shards) continue;
    n.forbid_reshard = n.forbid_reshard || p.forbid_reshard;
    n.allow_replication = n.allow_replication || p.allow_replication;
    n.keep_split = n.keep_split || p.keep_split;
    n.keep_partial = n.keep_partial || p.keep_partial;
    if (n.gather_limit < 0 && facts_of(n.op).may_go_round_ring(n)) n.gather_limit = p.limit_gather;
  }
}

/// Permits the operators on shards, from node `first` on, to exchange along these axes in addition to their own.
constexpr void allow_exchange(graph& g, std::size_t first, axis_mask axes) {
  for (std::size_t i = first; i < g.nodes.size(); ++i)
    if (facts_of(g.nodes[i].op).made == origin::shards) g.nodes[i].exchange_axes |= axes;
}

}  // namespace gspmd::detail
