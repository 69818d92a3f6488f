// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

/// The levels of saving: what a plan gives up to hold less, where the mesh says how much a device may hold. A program is planned for one
/// level after the other until it fits:
///
///   0   nothing
///   1   inputs that are gathered are not kept: who needs one again gathers it again (fully sharded data parallelism)
///   2   and inputs that nobody annotated are split by the axes that completion found no use for, those of more than a 4096th of the memory
///   3   and states along several dims, which may split their readers; and an einsum takes an operand that would be gathered to more than
///       a quarter of the memory in parts, where it can
///   4   to more than a 16th
///   5   to more than a 64th
///   6   and states lie as their next values are computed, which are brought nowhere then
///
/// Of levels 1 to 3, where all of one is more than it takes, some inputs give way and the others stay: `level + 8 * count`, the first `count` of
/// those that may, in the order in which a byte costs least: those that are read least often, which are gathered again least often, and of
/// these the largest, in the fewest messages.
namespace gspmd::detail {

inline constexpr int most_saving = 6;
constexpr int saving_level(int saving) { return saving % 8; }
/// The highest level of a program: without states it is 5.
constexpr int most_saving_of(span<const node> nodes) {
  for (const node& n : nodes)
    if (n.state >= 0) return most_saving;
  return most_saving - 1;
}
/// How many inputs give way at a level; 0: all that may.
constexpr int inputs_giving_way(int saving) { return saving / 8; }

/// Whether an input lies as the planner likes: nobody wrote where, of a state neither.
constexpr bool is_free_to_split(const node& n) { return facts_of(n.op).made == origin::given && (!n.annotated || n.state >= 0); }

/// By node the state that stands for those which meet in elementwise operators, as a weight and its moments do: one update reads them. -1: none.
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

/// By node who reads it and would gather it. Elementwise readers of a state take no gathering: they compute its part of the next one.
constexpr vec<int> readers_that_gather(span<const node> nodes, int level) {
  vec<int> readers(nodes.size(), 0);
  for (const node& n : nodes)
    for (const int o : n.operands)
      readers[o] += level > 1 && nodes[static_cast<std::size_t>(o)].state >= 0 && facts_of(n.op).uniform ? 0 : 1;
  return readers;
}

/// The inputs that may give way at a level, the cheapest first. States of one update follow each other: with some of them split and others not,
/// its gradient is scattered and gathered.
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

/// A number of inputs halfway between too few and enough, which parts no moments of one update: one that is split beside one that is not takes a
/// gathering more. 0: there is none.
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

/// By node whether it gives way, where some of a level do; empty where all do. Level 2: of 3 too.
constexpr vec<std::uint8_t> giving_way(span<const node> nodes, int saving, int level, std::int64_t most_memory) {
  vec<std::uint8_t> gives_way;
  const bool is_of_level = saving_level(saving) == level || (level == 2 && saving_level(saving) == 3);
  if (!is_of_level || inputs_giving_way(saving) == 0) return gives_way;
  gives_way.resize(nodes.size(), 0);
  const vec<int> inputs = cheapest_inputs(nodes, level, most_memory);
  for (int k = 0; k < inputs_giving_way(saving); ++k) gives_way[inputs[k]] = 1;
  return gives_way;
}

/// Whether a form of a node that is larger than what it was made of is there for one reader only.
constexpr bool is_gathered_again(const mesh_shape& mesh, int saving, const node& n, const sharding& from, const sharding& to) {
  return saving > 0 && facts_of(n.op).made == origin::given && from.partial == 0 &&
         local_elements(mesh, n.shape, from) < local_elements(mesh, n.shape, to);
}

/// Whether an input that is held so is to be split further.
constexpr bool is_split_to_save(const mesh_shape& mesh, const plan_request& request, const node& n, const sharding& held) {
  return saving_level(request.saving) > 1 && is_free_to_split(n) &&
         local_elements(mesh, n.shape, held) * bytes_of(n.type) > request.most_memory / 4096;
}

/// The most bytes that an operand of an einsum may be gathered to on a device; -1: any number.
constexpr std::int64_t gather_limit_of(const plan_request& request, const node& n) {
  if (n.gather_limit >= 0 || saving_level(request.saving) < 3 || !facts_of(n.op).may_go_round_ring(n)) return n.gather_limit;
  const int level = saving_level(request.saving);
  return request.most_memory >> (2 * ((level > 5 ? 5 : level) - 2));
}

}  // namespace gspmd::detail
