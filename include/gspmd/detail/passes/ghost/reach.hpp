// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/compositions/ghost_blocks.hpp"
#include "gspmd/detail/passes/ghost/sweep.hpp"

namespace gspmd::detail {

/// Several sweeps with one exchange: fields in blocks with room for the halos of all sweeps, and the width that is
/// fetched of each field.
struct ghost_round {
  std::int64_t sweeps = 0;
  vec<ghost_blocks> blocks;  // by dim of the field
  extents shape;             // of a field in blocks
  vec<index_range> needs;    // by leaf of ghost_reach, and by block: from -low to high
};

/// Finds how far a sweep reads around each element of each field.
class ghost_reach {
 public:
  const ghost_sweep& sweep;
  vec<ghost_blocks> dims;  // the split dims along which it reads; `low` and `high` are not set yet
  vec<int> leaves;         // the fields that it reads: first the carried fields, by result, then the invariant fields

  constexpr explicit ghost_reach(const ghost_sweep& s) : sweep(s) {
    find_dims();
    if (dims.empty()) return;
    vec<int> fields;  // results
    for (std::size_t k = 0; k < s.results.size(); ++k) {
      if (s.at(s.results[k]).shape.count == 0) continue;
      fields.push_back(s.results[k]);
      leaves.push_back(s.carry_of(k));
    }
    carried_ = leaves.size();
    for (const int i : s.body)
      if (s.varies[i] != 0 && s.at(i).op != opcode::carry && s.at(i).shape.count > 0)
        for (int k = 0; k < facts_of(s.at(i).op).reads(s.at(i)); ++k) add_leaf(s.at(i).operands[k]);
    for (const int r : fields) add_leaf(s.at(r).operands[1]);
    const auto keep = [&](const vec<index_range>& reads, vec<index_range>& kept) {
      for (const int r : fields)
        for (std::size_t b = 0; b < dims.size(); ++b)
          kept.push_back(reads[dims.size() * static_cast<std::size_t>(s.at(r).operands[1]) + b]);
    };
    for (const int leaf : leaves) keep(reach_from(leaf), reach_);
    keep(reach_from(anything), room_);
  }

  [[nodiscard]] constexpr int leaf_of(int i) const {
    for (std::size_t l = 0; l < leaves.size(); ++l)
      if (leaves[l] == i) return static_cast<int>(l);
    return -1;
  }
  /// Returns true if a field that does not vary is computed in blocks instead of cut into blocks. It consists of
  /// indices and numbers, and of values without extent along a dim in blocks. Outside of the loop, computing it may
  /// take many operators.
  [[nodiscard]] constexpr bool is_light(int i) const {
    const node& n = sweep.at(i);
    if (ghost_sweep::is_source(n)) return true;
    if (sweep.is_stretched(n)) {
      const auto along = facts_of(n.op).lies_along(sweep.program, n);
      for (const auto d : along)
        for (const auto& b : dims)
          if (d == b.dim) return false;
      return true;
    }
    if (n.region != sweep.loop || !ghost_sweep::is_computed_in_loops(n)) return false;
    for (const int o : n.operands)
      if (!is_light(o)) return false;
    return true;
  }

  /// Returns a round of `sweeps` sweeps. Works from the last sweep back to the first: each sweep computes the elements
  /// that the next sweep needs.
  ///
  ///   a sweep that reads u[-1] and u[1], 3 sweeps      3 elements of u on each side are fetched
  [[nodiscard]] constexpr ghost_round round_of(std::int64_t sweeps) const {
    ghost_round made;
    made.sweeps = sweeps;
    const auto count = dims.size();
    made.needs = vec<index_range>(leaves.size() * count, index_range{0, 0});
    vec<index_range> after(carried_ * count, index_range{0, 0}), room(count, index_range{0, 0});
    for (std::int64_t k = 0; k < sweeps; ++k) {
      vec<index_range> before(carried_ * count, index_range{0, 0});
      for (std::size_t r = 0; r < after.size(); ++r)
        join(room[r % count], index_range{after[r].begin + room_[r].begin, after[r].end + room_[r].end});
      for (std::size_t l = 0; l < leaves.size(); ++l)
        for (std::size_t r = 0; r < carried_; ++r)
          for (std::size_t b = 0; b < count; ++b) {
            const index_range by = reach_[(l * carried_ + r) * count + b], of = after[r * count + b];
            if (by == nothing) continue;
            join(l < carried_ ? before[l * count + b] : made.needs[l * count + b], {of.begin + by.begin, of.end + by.end});
          }
      after = std::move(before);
    }
    for (std::size_t k = 0; k < after.size(); ++k) made.needs[k] = after[k];
    for (std::size_t b = 0; b < count; ++b) {
      ghost_blocks own = dims[b];
      own.low = -room[b].begin;
      own.high = room[b].end;
      made.blocks.push_back(own);
    }
    std::size_t next = 0;
    for (int d = 0; d < sweep.shape.count; ++d) {
      const bool is_blocked = next < made.blocks.size() && made.blocks[next].dim == d;
      if (is_blocked) made.shape.push_back(made.blocks[next].parts);
      made.shape.push_back(is_blocked ? made.blocks[next++].width() : sweep.shape[d]);
    }
    return made;
  }

 private:
  static constexpr index_range nothing{1, 0};
  static constexpr int anything = -1;
  static constexpr void join(index_range& a, index_range b) {
    if (b == nothing) return;
    if (a == nothing || b.begin < a.begin) a.begin = b.begin;
    if (a == nothing || b.end > a.end) a.end = b.end;
  }

  constexpr void find_dims() {
    vec<ghost_blocks> split;
    for (int d = 0; d < sweep.shape.count; ++d) {
      const auto parts = parts_of(sweep.mesh, sweep.layout, d);
      if (parts > 1 && sweep.shape[d] > 0) split.push_back({d, sweep.shape[d], parts});
    }
    for (auto& b : split) {
      bool is_read = false;
      for (const int i : sweep.body) {
        if (sweep.varies[i] == 0 || sweep.at(i).shape.count == 0 || !sweep.is_shift(sweep.at(i))) continue;
        const auto by = reach_of(sweep.at(i), b);
        is_read = is_read || by.begin != 0 || by.end != 0;
        const auto map = sweep.map_of(sweep.at(i));
        if (map.dims[0].dim == b.dim && map.dims[0].beyond == continuation::round) b.beyond = continuation::round;
      }
      if (is_read) dims.push_back(b);
    }
  }
  constexpr void add_leaf(int i) {
    if (sweep.varies[i] != 0 || sweep.at(i).shape.count == 0 || leaf_of(i) >= 0) return;
    if (!is_light(i)) leaves.push_back(i);
    else if (!ghost_sweep::is_source(sweep.at(i)) && !sweep.is_stretched(sweep.at(i)))
      for (const int o : sweep.at(i).operands) add_leaf(o);
  }
  /// Returns how far a shift reads along a dim, including its continuation beyond the ends.
  [[nodiscard]] constexpr index_range reach_of(const node& n, const ghost_blocks& b) const {
    const auto map = sweep.map_of(n);
    const auto& along = map.dims[0];
    if (along.dim != b.dim) return {0, 0};
    const auto offset = offset_of(along, b.extent);
    index_range by{offset < 0 ? offset : 0, offset > 0 ? offset : 0};  // blocks also hold the shifted values
    if (along.beyond == continuation::none || along.beyond == continuation::round) return by;
    const auto outside = block_reads::beyond_ends(b.extent, offset);
    for (auto e = outside.begin; e < outside.end; ++e) {
      const auto to = element_at(along.beyond, b.extent, e + offset) - e;
      join(by, {to, to});
    }
    return by;
  }
  /// Returns by node of the body, and by dim, the indices around its own that it reads of field `leaf`, or of any
  /// value.
  [[nodiscard]] constexpr vec<index_range> reach_from(int leaf) const {
    vec<index_range> reads(dims.size() * sweep.program.nodes.size(), leaf == anything ? index_range{0, 0} : nothing);
    const auto of = [&](int i) { return reads.data() + dims.size() * static_cast<std::size_t>(i); };
    for (std::size_t b = 0; leaf != anything && b < dims.size(); ++b) of(leaf)[b] = {0, 0};
    for (const int i : sweep.body) {
      const node& n = sweep.at(i);
      if (n.op == opcode::carry || sweep.varies[i] == 0 || n.shape.count == 0) continue;
      const bool is_shift = sweep.is_shift(n);
      for (std::size_t b = 0; b < dims.size(); ++b) {
        for (int k = 0; k < facts_of(n.op).reads(n); ++k) join(of(i)[b], of(n.operands[k])[b]);
        if (!is_shift || of(i)[b] == nothing) continue;
        const auto by = reach_of(n, dims[b]);
        of(i)[b] = {of(i)[b].begin + by.begin, of(i)[b].end + by.end};
      }
    }
    return reads;
  }

  std::size_t carried_ = 0;  // number of carried leaves
  vec<index_range> reach_;   // by leaf, carried field that is computed, and dim
  vec<index_range> room_;    // the same for any value: also for intermediate values
};

}  // namespace gspmd::detail
