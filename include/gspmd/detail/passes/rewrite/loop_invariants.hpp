// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/tuning.hpp"

namespace gspmd::detail {

/// Finds loop-invariant values that are cheaper inside a loop than before it: arithmetic of a few tensors, also read
/// at offsets, which a loop over the elements computes where it reads the value. For example, six means of
/// neighbouring coefficients before a loop are six tensors that each iteration reads. Inside the loop, each iteration
/// reads one tensor, whose margins are fetched before the loop. (7-point stencil of 192^3 doubles, two threads: 15.5
/// ms per iteration instead of 29.5 ms.)
///
/// Values that share a tensor are judged together, by two numbers of bytes. One is the bytes of the tensors that they
/// read, unless the body reads these tensors anyway. The other is the number of bytes of these values that the body
/// reads. Only elementwise operators of the body may read them.
class cheap_invariants {
 public:
  constexpr cheap_invariants(const graph& g, const vec<std::uint8_t>& is_light, vec<int>& homes)
      : graph_(g), nodes_(g.nodes.data()), is_light_(is_light), homes_(homes) {
    const int count = static_cast<int>(homes.size());
    for (int i = 0; i < count; ++i)
      if (homes_[i] != nodes_[i].region && is_arithmetic(nodes_[i].op)) {
        if (set_.empty()) set_.resize(homes.size(), -1);
        set_[i] = i;
      }
    if (set_.empty()) return;
    for (int i = 0; i < count; ++i) source_.push_back(i);
    for (int i = 0; i < count; ++i)
      if (is_offset_read(nodes_[i])) source_[i] = source_[nodes_[i].operands[0]];
    shared_by_.resize(homes.size(), -1);
    read_in_.resize(homes.size(), -1);
    gained_.resize(homes.size(), 0);
    for (int i = 0; i < count; ++i)
      for (const int operand : nodes_[i].operands) {
        const int o = source_[operand];
        if (set_[i] < 0) read_in_[o] = is_elementwise(nodes_[i].op) ? homes_[i] : -1;
        else if (set_[o] >= 0 && nodes_[o].region == nodes_[i].region) join(i, o);
        else if (is_light_[o] == 0) share(i, o);
      }
    for (int i = 0; i < count; ++i)
      for (const int o : nodes_[i].operands) look_at(i, source_[o]);
    for (int i = 0; i < count; ++i)
      if (set_[i] >= 0 && gained_[root(i)] >= least_bytes_of_kept_invariants) homes_[i] = nodes_[i].region;
  }

 private:
  static constexpr std::int64_t never = std::int64_t{1} << 62;

  [[nodiscard]] constexpr bool is_offset_read(const node& n) const {
    const auto& facts = facts_of(n.op);
    if (facts.made != origin::shards || n.operands.count != 1 || facts.movements(n) != 1) return false;
    if (!(n.shape == nodes_[n.operands[0]].shape)) return false;
    for (const auto& d : facts.map(graph_, n, 0).dims)
      if (d.from_step != 1 || d.to_step != 1) return false;
    return true;
  }
  [[nodiscard]] constexpr std::int64_t bytes(int i) const { return bounded_bytes(nodes_[i].shape, bytes_of(nodes_[i].type)); }
  constexpr int root(int i) {
    while (set_[i] != i) i = set_[i] = set_[set_[i]];
    return i;
  }
  constexpr void join(int a, int b) { set_[root(a)] = root(b); }
  /// Operator `i` reads tensor `o`, which is computed elsewhere.
  constexpr void share(int i, int o) {
    const int other = shared_by_[o];
    if (other >= 0 && nodes_[other].region == nodes_[i].region) join(i, other);
    else shared_by_[o] = i;
  }
  constexpr void look_at(int i, int o) {
    if (set_[i] >= 0) {  // each tensor once
      if (shared_by_[o] != i) return;
      shared_by_[o] = -1;
      if (read_in_[o] != nodes_[i].region) gained_[root(i)] -= bytes(o);
    } else if (set_[o] >= 0) {
      auto& gained = gained_[root(o)];
      if (!is_elementwise(nodes_[i].op) || homes_[i] != nodes_[o].region) gained = -never;
      else if (gained > -never / 2) gained += bytes(o);
    }
  }

  const graph& graph_;
  const node* nodes_;
  const vec<std::uint8_t>& is_light_;
  vec<int>& homes_;
  vec<int> source_;           // by tensor: the tensor that a loop reads at an offset instead, or itself
  vec<int> set_;              // by node: another node that is judged with it, itself, or -1
  vec<int> shared_by_;        // by tensor: the first operator that reads it
  vec<int> read_in_;          // by tensor: the body whose own elementwise operators read it
  vec<std::int64_t> gained_;  // by root: bytes that an iteration need not read
};

/// Returns by node the region that contains each operator, after loop-invariant operators are moved out of loops; -1
/// for the program itself.
///
/// An operator leaves a loop with several iterations if it reads nothing that the body computes, carries or counts. It
/// must not produce more bytes than it reads: a mask made from labels stays, because it would be stored during the
/// whole loop. An operator also stays if each iteration reads fewer bytes to recompute its value than to load it
/// (cheap_invariants). User functions stay, because they may throw. Operators in a conditional stay, because its body
/// may never run.
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
  if (g.has_regions) cheap_invariants(g, is_light, homes);
  return homes;
}

}  // namespace gspmd::detail
