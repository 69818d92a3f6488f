// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/passes/ghost/reach.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Adds a loop to a program in rounds of several sweeps.
///
///   for each of iterations / k rounds
///     b = ghost_blocks(u)        the shard with k times the radius around it: one exchange for each split dim
///     k times: b = sweep(b)      on the whole block; each sweep invalidates another radius at its ends, which no valid
///                                element reads
///     u = b without its ghosts
///   and a round of the remaining sweeps
class ghost_rounds {
 public:
  /// `number`: by node of the old program, the new node.
  constexpr ghost_rounds(const ghost_reach& reach, graph& out, vec<int>& number)
      : reach_(reach), s_(reach.sweep), out_(out), number_(number) {}

  constexpr void add(std::int64_t at_once) {
    const node& start = s_.at(s_.loop);
    const auto rounds = start.integer / at_once, left = start.integer % at_once;
    const int home = out_.open_region = start.region < 0 ? -1 : number_[start.region];
    out_.open_scope = start.scope;
    for (const int i : s_.body)
      if (s_.varies[i] == 0) add_before(i);
    vec<int> carried;
    for (std::size_t k = 0; k < s_.results.size(); ++k) carried.push_back(number_[s_.at(s_.carry_of(k)).operands[0]]);
    begin(reach_.round_of(at_once));
    if (rounds == 1) {
      carried = add_round(carried, -1, 0);
    } else {
      const int loop = open_loop(out_, rounds, start.at);
      vec<int> held;
      for (const int c : carried) held.push_back(add_carry(out_, c, start.at));
      const int first = (term(out_, loop, start.at) * term(out_, number(at_once), start.at)).id();
      const vec<int> next = add_round(held, first, 0);
      for (std::size_t k = 0; k < carried.size(); ++k) carried[k] = add_loop_result(out_, held[k], next[k], start.at);
      out_.open_region = home;
    }
    if (left > 0) {
      begin(reach_.round_of(left));
      carried = add_round(carried, -1, start.integer - left);
    }
    for (std::size_t k = 0; k < carried.size(); ++k) number_[s_.results[k]] = carried[k];
    out_.open_region = out_.open_scope = -1;
  }

 private:
  constexpr int number(std::int64_t n) { return add_constant(out_, dtype::s64, {}, 0, n, s_.at(s_.loop).at); }
  [[nodiscard]] constexpr bool is_field(std::size_t result) const { return s_.at(s_.results[result]).shape.count > 0; }
  [[nodiscard]] constexpr span<const ghost_blocks> blocks() const { return {round_.blocks.data(), round_.blocks.size()}; }

  /// Adds a node that does not vary before the loop.
  constexpr void add_before(int i) {
    node n = s_.at(i);
    for (auto& o : n.operands) o = number_[o];
    n.region = out_.open_region;
    number_[i] = static_cast<int>(out_.nodes.size());
    out_.nodes.push_back(n);
  }
  /// Returns the sharding of a field if its first `done` split dims are in blocks.
  [[nodiscard]] constexpr annotation layout_of(std::size_t done) const {
    sharding s = s_.layout;
    for (auto& use : s.splits) {
      int more = 0;
      for (std::size_t b = 0; b < done; ++b) more += round_.blocks[b].dim < use.dim ? 1 : 0;
      use.dim = static_cast<std::int8_t>(use.dim + more);
    }
    return s;
  }
  /// Returns `x`, the new node of a leaf, in blocks.
  constexpr int in_blocks(int x, int leaf, location at) {
    x = add_reshard(out_, x, layout_of(0), at);
    const auto* const needs = round_.needs.data() + round_.blocks.size() * static_cast<std::size_t>(reach_.leaf_of(leaf));
    for (std::size_t b = 0; b < round_.blocks.size(); ++b) {
      ghost_blocks own = round_.blocks[b];
      own.dim += static_cast<int>(b);
      own.brought = {-needs[b].begin, needs[b].end};
      x = add_reshard(out_, add_ghost_blocks(out_, x, own, at), layout_of(b + 1), at);
    }
    return x;
  }

  /// Begins rounds with a number of sweeps: puts the outside values that these sweeps read in blocks.
  constexpr void begin(ghost_round round) {
    round_ = std::move(round);
    outside_ = vec<int>(s_.program.nodes.size(), -1);
    for (const int leaf : reach_.leaves)
      if (s_.varies[leaf] == 0) outside_[leaf] = in_blocks(number_[leaf], leaf, s_.at(leaf).at);
  }

  /// Adds a round on the carried values and returns its results. Its first sweep has the number `first`, a value of
  /// the program, or the number `more` if `first` is -1.
  constexpr vec<int> add_round(const vec<int>& carried, int first, std::int64_t more) {
    const node& start = s_.at(s_.loop);
    const int home = out_.open_region;
    vec<int> begun, held, next;
    for (std::size_t k = 0; k < carried.size(); ++k)
      begun.push_back(is_field(k) ? in_blocks(carried[k], s_.carry_of(k), start.at) : carried[k]);
    const int loop = open_loop(out_, round_.sweeps, start.at);
    made_ = outside_;
    for (std::size_t k = 0; k < carried.size(); ++k) {
      held.push_back(add_carry(out_, begun[k], start.at));
      made_[s_.carry_of(k)] = held[k];
    }
    made_[s_.loop] = (term(out_, loop, start.at) + term(out_, first < 0 ? number(more) : first, start.at)).id();
    block_reads reads(out_, blocks(), round_.shape);
    for (const int i : s_.body)
      if (s_.varies[i] != 0 && s_.at(i).op != opcode::carry) made_[i] = add_in_blocks(reads, i);
    for (const int r : s_.results) next.push_back(in_sweep(reads, s_.at(r).operands[1]));
    for (std::size_t k = 0; k < next.size(); ++k) next[k] = add_loop_result(out_, held[k], next[k], start.at);
    out_.open_region = home;
    for (std::size_t k = 0; k < next.size(); ++k)
      if (is_field(k))
        next[k] = add_reshard(out_, add_without_ghosts(out_, next[k], blocks(), s_.shape, start.at), layout_of(0), start.at);
    return next;
  }
  /// Returns the node that replaces node `i` in a sweep.
  constexpr int in_sweep(block_reads& reads, int i) {
    if (made_[i] >= 0) return made_[i];
    const bool is_light = s_.varies[i] == 0 && s_.at(i).shape.count > 0 && reach_.is_light(i);
    return made_[i] = is_light ? add_in_blocks(reads, i) : number_[i];
  }
  constexpr int add_in_blocks(block_reads& reads, int i) {
    node n = s_.at(i);
    const bool is_scalar = n.shape.count == 0;
    if (!is_scalar && s_.is_renamed(n)) return in_sweep(reads, n.operands[0]);
    if (!is_scalar && s_.is_shift(n)) {
      const auto map = s_.map_of(n);
      const auto offset = offset_of(map.dims[0], n.shape[map.dims[0].dim]);
      return reads.shifted(in_sweep(reads, n.operands[0]), map.dims[0], offset, map.fill, n.at);
    }
    if (ghost_sweep::is_source(n) && facts_of(n.op).in_loop(s_.program, n).is_index())
      return reads.index_as(n.type, facts_of(n.op).in_loop(s_.program, n).dim, n.at);
    if (!is_scalar && s_.is_stretched(n)) {
      inline_vec<std::int8_t, max_rank> dims;
      for (int k = 0; k < s_.at(n.operands[0]).shape.count; ++k)
        dims.push_back(static_cast<std::int8_t>(reads.place_of(attribute_dim(n, k))));
      const int from = s_.varies[n.operands[0]] != 0 ? in_sweep(reads, n.operands[0]) : number_[n.operands[0]];
      return add_broadcast(out_, from, round_.shape, dims, n.at);
    }
    for (auto& o : n.operands) o = in_sweep(reads, o);
    if (!is_scalar) n.shape = round_.shape;
    n.annotated = false;
    n.annotation = {};
    n.tag = -1;
    return out_.add_sized(n);
  }

  const ghost_reach& reach_;
  const ghost_sweep& s_;
  graph& out_;
  vec<int>& number_;
  ghost_round round_;
  vec<int> outside_;  // by old node: in blocks, outside of the loop of sweeps
  vec<int> made_;     // by old node: in the current sweep
};

}  // namespace gspmd::detail
