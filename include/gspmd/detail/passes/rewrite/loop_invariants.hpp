// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/registry.hpp"

namespace gspmd::detail {

/// Where the operators of a program stand, those moved out of loops whose bodies would compute the same in every trip: the region by
/// node, -1 for the program itself.
///
/// An operator leaves a loop of several trips if it reads nothing that the body makes, carries or counts, and if it makes no more bytes
/// than it reads: a mask made from labels stays, since it would be held through the whole loop. Functions of the user's stay, which may
/// throw, and so does what stands in a conditional, whose body may never run.
constexpr vec<int> homes_of(const graph& g) {
  vec<int> homes(g.nodes.size(), -1);
  vec<std::uint8_t> is_light(g.nodes.size(), 0);
  const node* const nodes = g.nodes.data();
  const auto bytes = [](const node& n) { return bounded_bytes(n.shape, bytes_of(n.type)); };
  for (int i = 0; i < static_cast<int>(homes.size()); ++i) {
    const node& n = nodes[i];
    const auto& facts = facts_of(n.op);
    homes[i] = facts.made == origin::result ? homes[n.operands[0]] : n.region;
    const bool is_source = facts.made == origin::source;
    is_light[i] = is_source || (facts.made == origin::shards && facts.is_made_again(n)) ? 1 : 0;
    if (homes[i] < 0 || n.function != nullptr || n.local != nullptr) continue;
    if (!is_source && facts.made != origin::shards && facts.made != origin::renamed) continue;
    if (is_light[i] == 0) {
      std::int64_t read = 0;
      for (const int o : n.operands) read += is_light[o] != 0 ? 0 : bytes(nodes[o]);
      if (bytes(n) > read) continue;
    }
    for (int r = n.region; r >= 0 && nodes[r].op == opcode::loop && nodes[r].integer > 1; r = homes[i]) {
      bool is_same_in_every_trip = true;
      for (const int o : n.operands) is_same_in_every_trip = is_same_in_every_trip && o != r && homes[o] != r;
      if (!is_same_in_every_trip) break;
      homes[i] = nodes[r].region;
    }
  }
  return homes;
}

}  // namespace gspmd::detail
