// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

/// The levels of saving: the means to make a plan hold less, if the mesh limits the memory of a device. A program is
/// planned at one level after the other until it fits:
///
///   0   none
///   1   gathered inputs are not kept: each user gathers the input again (fully sharded data parallelism)
///   2   also, unannotated inputs of more than 1/4096 of the memory are split by the axes that completion did not use
///   3   also, states are split along several dims, which may split their users; and an einsum rotates an operand
///       around a ring, if possible, instead of gathering it to more than a quarter of the memory
///   4   the same from 1/16 of the memory on
///   5   the same from 1/64 of the memory on
///   6   also, states have the shardings of their next values as computed, so that no next value is moved
///
/// If a whole level 1, 2 or 3 saves more than necessary, only some inputs give way. `saving` is then `level + 8 *
/// count`: the first `count` candidates give way. The candidates are ordered by the cost of a saved byte. Inputs with
/// few users are first, because they are gathered again least often. Among inputs with equally many users, large
/// inputs are first, because they need the fewest messages.
namespace gspmd::detail {

inline constexpr int most_saving = 6;
constexpr int saving_level(int saving) { return saving % 8; }
/// Returns the highest level of a program: 6, or 5 without states.
constexpr int most_saving_of(span<const node> nodes) {
  for (const node& n : nodes)
    if (n.state >= 0) return most_saving;
  return most_saving - 1;
}
/// Returns the number of inputs that give way at a level; 0: all candidates.
constexpr int inputs_giving_way(int saving) { return saving / 8; }

/// Returns true if the planner chooses the sharding of the input: it has no annotation, or it is a state.
constexpr bool is_free_to_split(const node& n) { return facts_of(n.op).made == origin::given && (!n.annotated || n.state >= 0); }

/// Returns by node the representative of the states that elementwise operators combine, such as a weight and its
/// moments, or -1. One update reads these states.
constexpr vec<int> updates_of_states(span<const node> nodes) {
  vec<int> found(nodes.size(), -1);
  const auto stands_for = [&found](int i) {
    while (found[i] != i) i = found[i] = found[found[i]];
    return i;
  };
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    const node& n = nodes[static_cast<std::size_t>(i)];
    if (n.state >= 0 && n.operands.count == 0) found[i] = i;
    if (!facts_of(n.op).uniform) continue;
    for (const int o : n.operands)
      if (found[o] >= 0) {
        const int other = stands_for(o);
        if (found[i] >= 0) found[stands_for(found[i])] = other;
        found[i] = other;
      }
  }
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i)
    if (found[i] >= 0) found[i] = stands_for(found[i]);
  return found;
}

/// Returns by node the number of users that would gather it. Above level 1, elementwise users of a state gather
/// nothing: each device computes its part of the next value.
constexpr vec<int> readers_that_gather(span<const node> nodes, int level) {
  vec<int> readers(nodes.size(), 0);
  for (const node& n : nodes)
    for (const int o : n.operands)
      readers[o] += level > 1 && nodes[static_cast<std::size_t>(o)].state >= 0 && facts_of(n.op).uniform ? 0 : 1;
  return readers;
}

/// Returns the candidates of a level, the cheapest first. The states of one update are adjacent. If only some states of
/// an update were split, the gradient would be scattered and gathered.
constexpr vec<int> cheapest_inputs(span<const node> nodes, int level, std::int64_t most_memory) {
  const node* const all = nodes.data();
  const vec<int> updates = updates_of_states(nodes);
  const vec<int> readers = readers_that_gather(nodes, level);
  vec<int> inputs;
  const auto bytes = [&](int i) { return bounded_bytes(all[i].shape, bytes_of(all[i].type)); };
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    if (level > 1 ? !is_free_to_split(all[i]) || bytes(i) <= most_memory / 4096 : facts_of(all[i].op).made != origin::given)
      continue;
    const auto is_before = [&](int other) {
      if (readers[i] != readers[other]) return readers[i] < readers[other];
      return bytes(i) != bytes(other) ? bytes(i) > bytes(other) : updates[i] < updates[other];
    };
    int* at = inputs.end();
    while (at != inputs.begin() && is_before(at[-1])) --at;
    inputs.insert(at, i);
  }
  return inputs;
}

/// Returns a number of inputs halfway between too few and enough that does not divide the states of one update. A split
/// state next to an unsplit state would take one more gather. Returns 0 if no such number exists.
constexpr int inputs_between(span<const node> nodes, int level, std::int64_t most_memory, int too_few, int enough) {
  const vec<int> inputs = cheapest_inputs(nodes, level, most_memory), updates = updates_of_states(nodes),
                 readers = readers_that_gather(nodes, level);
  const auto parts_update = [&](int count) {
    const int last = inputs[count - 1], next = inputs[count];
    return updates[next] >= 0 && updates[next] == updates[last] && readers[next] == 0 && readers[last] == 0;
  };
  int more = (too_few + enough) / 2, fewer = more;
  while (more < enough && parts_update(more)) ++more;
  if (more < enough) return more;
  while (fewer > too_few && parts_update(fewer)) --fewer;
  return fewer > too_few ? fewer : 0;
}

/// Returns by node whether it gives way, if only some inputs of the level do. Otherwise returns an empty list. For
/// level 2, a saving of level 3 counts too.
constexpr vec<std::uint8_t> giving_way(span<const node> nodes, int saving, int level, std::int64_t most_memory) {
  vec<std::uint8_t> gives_way;
  const bool is_of_level = saving_level(saving) == level || (level == 2 && saving_level(saving) == 3);
  if (!is_of_level || inputs_giving_way(saving) == 0) return gives_way;
  gives_way.resize(nodes.size(), 0);
  const vec<int> inputs = cheapest_inputs(nodes, level, most_memory);
  for (int k = 0; k < inputs_giving_way(saving); ++k) gives_way[inputs[k]] = 1;
  return gives_way;
}

/// Returns true if a gathered form of an input serves one user only, because the plan saves memory.
constexpr bool is_gathered_again(const mesh_shape& mesh, int saving, const node& n, const sharding& from, const sharding& to) {
  return saving > 0 && facts_of(n.op).made == origin::given && from.partial == 0 &&
         local_elements(mesh, n.shape, from) < local_elements(mesh, n.shape, to);
}

/// Returns true if an input with the sharding `held` must be split further.
constexpr bool is_split_to_save(const mesh_shape& mesh, const plan_request& request, const node& n, const sharding& held) {
  return saving_level(request.saving) > 1 && is_free_to_split(n) &&
         local_elements(mesh, n.shape, held) * bytes_of(n.type) > request.most_memory / 4096;
}

/// Returns the most bytes on a device that an operand of an einsum may be gathered to; -1: no limit.
constexpr std::int64_t gather_limit_of(const plan_request& request, const node& n) {
  if (n.gather_limit >= 0 || saving_level(request.saving) < 3 || !facts_of(n.op).may_go_round_ring(n)) return n.gather_limit;
  const int level = saving_level(request.saving);
  return request.most_memory >> (2 * ((level > 5 ? 5 : level) - 2));
}

}  // namespace gspmd::detail
