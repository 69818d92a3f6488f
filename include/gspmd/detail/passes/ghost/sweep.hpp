// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Several sweeps on one exchange: fields in blocks with room for them.
struct ghost_round {
  std::int64_t sweeps = 0;
  vec<ghost_blocks> blocks;  // by dim of the field
  extents shape;             // of a field in blocks
};

/// A loop over a stencil as it was written: its fields, and how far a trip, a sweep, reads around each element. What does not go in blocks
/// is refused.
class ghost_sweep {
 public:
  const graph& program;
  const mesh_shape& mesh;
  int loop;
  vec<int> results, body;    // loop_results; the nodes of the body
  vec<std::uint8_t> varies;  // by node: what is carried or counted reaches it
  extents shape;             // of all fields
  sharding layout;           // of all fields
  vec<ghost_blocks> dims;    // the split ones that a sweep reads along, with how far to each side

  /// `completed`: the sharding of every value. Mistakes are recorded in `errors`.
  constexpr ghost_sweep(const graph& g, const vec<sharding>& completed, int node, graph& errors)
      : program(g), mesh(g.mesh->shape), loop(node), varies(g.nodes.size(), 0), completed_(completed), errors_(errors) {
    varies[loop] = 1;
    for (int k = loop + 1; k < static_cast<int>(g.nodes.size()); ++k) {
      if (at(k).op == opcode::loop_result && at(at(k).operands[0]).region == loop) results.push_back(k);
      else if (at(k).region == loop) body.push_back(k);
      else if (!results.empty()) break;
    }
    find_fields();
    find_what_varies();
    if (!errors.failed()) find_reach();
  }

  [[nodiscard]] constexpr const node& at(int i) const { return program.nodes[i]; }
  /// The carried value that a result belongs to.
  [[nodiscard]] constexpr int carry_of(std::size_t result) const { return at(results[result]).operands[0]; }

  [[nodiscard]] constexpr bool is_shift(const node& n) const {
    return n.operands.count == 1 && facts_of(n.op).movements(n) == 1 && at(n.operands[0]).shape == n.shape &&
           moves_all_alike(map_of(n));
  }
  [[nodiscard]] constexpr index_map map_of(const node& n) const { return facts_of(n.op).map(program, n, 0); }
  [[nodiscard]] static constexpr bool is_computed_in_loops(const node& n) {
    return facts_of(n.op).made == origin::shards && facts_of(n.op).runs == realisation::loop;
  }
  /// The identity: a wish for a sharding, or a reshape to the shape that it has.
  [[nodiscard]] constexpr bool is_renamed(const node& n) const {
    return facts_of(n.op).made == origin::renamed || (may_be_moved(program, n) && at(n.operands[0]).shape == n.shape);
  }
  [[nodiscard]] static constexpr bool is_source(const node& n) { return facts_of(n.op).made == origin::source; }
  /// A broadcast. (A transpose leaves as many elements.)
  [[nodiscard]] constexpr bool is_stretched(const node& n) const {
    if (facts_of(n.op).runs != realisation::strides || is_source(n)) return false;
    const extents& from = at(n.operands[0]).shape;
    return from.count == 0 || elements(from) != elements(n.shape);
  }

  /// Whether a field that does not change is rather made in blocks than cut into them: of indices and numbers, and of what has no extent
  /// along a dim in blocks. Outside of the loop it may be much that makes it.
  [[nodiscard]] constexpr bool is_light(int i) const {
    const node& n = at(i);
    if (is_source(n)) return true;
    if (is_stretched(n)) {
      const auto along = facts_of(n.op).lies_along(program, n);
      for (const auto d : along)
        for (const auto& b : dims)
          if (d == b.dim) return false;
      return true;
    }
    if (n.region != loop || !is_computed_in_loops(n)) return false;
    for (const int o : n.operands)
      if (!is_light(o)) return false;
    return true;
  }

  [[nodiscard]] constexpr ghost_round round_of(std::int64_t sweeps) const {
    ghost_round made;
    made.sweeps = sweeps;
    for (auto b : dims) {
      b.low = saturating_multiply(b.low, sweeps);
      b.high = saturating_multiply(b.high, sweeps);
      made.blocks.push_back(b);
    }
    std::size_t next = 0;
    for (int d = 0; d < shape.count; ++d) {
      const bool is_blocked = next < made.blocks.size() && made.blocks[next].dim == d;
      if (is_blocked) made.shape.push_back(made.blocks[next].parts);
      made.shape.push_back(is_blocked ? made.blocks[next++].width() : shape[d]);
    }
    return made;
  }

 private:
  constexpr void refuse(const node& n, const text& why) {
    errors_.fail(n.at, name_of(n.op), mistake::region,
                 text("stands in a loop of several sweeps on one exchange, ghost, and ")
                     << why << "; compute it outside of the loop, or write the loop without ghost");
  }
  constexpr void find_fields() {
    bool is_first = true;
    for (const int r : results) {
      const int c = at(r).operands[0];
      if (at(c).shape.count == 0) continue;
      if (is_first) {
        shape = at(c).shape;
        layout = completed_[c];
      } else if (!(at(c).shape == shape)) {
        refuse(at(loop), text("carries fields of ")
                             << shape_text(shape) << " and " << shape_text(at(c).shape) << ", where all need one shape");
      } else if (!same_layout(completed_[c], layout)) {
        refuse(at(loop), text("carries fields that are sharded ")
                             << sharding_text(*program.mesh, layout, shape.count) << " and "
                             << sharding_text(*program.mesh, completed_[c], shape.count) << ", where all need one sharding");
      }
      is_first = false;
    }
  }
  constexpr void find_what_varies() {
    for (const int i : body) {
      const node& n = at(i);
      if (is_region(n.op) && n.op != opcode::carry) return refuse(n, "begins a body of its own");
      bool any = n.op == opcode::carry;
      bool all_scalars = true;
      for (int k = 0; k < n.operands.count && n.op != opcode::carry; ++k) {
        any = any || varies[n.operands[k]] != 0;
        all_scalars = all_scalars && at(n.operands[k]).shape.count == 0;
      }
      varies[i] = any ? 1 : 0;
      if (!any || n.op == opcode::carry) continue;
      if (n.shape.count == 0) {
        if (!is_computed_in_loops(n) || !all_scalars) return refuse(n, "what it computes of a field is no field");
        continue;
      }
      if (!(n.shape == shape))
        return refuse(n, text("is ") << shape_text(n.shape) << " where the fields are " << shape_text(shape));
      if (n.annotated && !same_tiles(mesh, n.shape, completed_[i], layout))
        return refuse(n, text("is sharded ")
                             << sharding_text(*program.mesh, completed_[i], n.shape.count) << " where the fields are sharded "
                             << sharding_text(*program.mesh, layout, n.shape.count));
      if (!is_shift(n) && !is_computed_in_loops(n) && !is_renamed(n) && !(is_stretched(n) && all_scalars))
        return refuse(n, "is neither elementwise nor a shift, of which stencils consist");
    }
  }
  /// How far a sweep reads along each split dim.
  constexpr void find_reach() {
    vec<ghost_blocks> split;
    for (int d = 0; d < shape.count; ++d) {
      const auto parts = parts_of(mesh, layout, d);
      if (parts > 1 && shape[d] > 0) split.push_back({d, shape[d], parts, 0, 0});
    }
    vec<index_range> reads(split.size() * program.nodes.size(), index_range{0, 0});
    const auto of = [&](int i) { return reads.data() + split.size() * static_cast<std::size_t>(i); };
    const auto join = [](index_range& a, index_range b) {
      if (b.begin < a.begin) a.begin = b.begin;
      if (b.end > a.end) a.end = b.end;
    };
    for (const int i : body) {
      const node& n = at(i);
      if (n.op == opcode::carry || varies[i] == 0) continue;
      for (int k = 0; k < facts_of(n.op).reads(n); ++k)
        for (std::size_t b = 0; b < split.size(); ++b) join(of(i)[b], of(n.operands[k])[b]);
      if (!is_shift(n)) continue;
      const auto map = map_of(n);
      for (std::size_t b = 0; b < split.size(); ++b) {
        auto& own = of(i)[b];
        const auto& along = map.dims[0];
        if (along.dim != split[b].dim) continue;
        const auto offset = offset_of(along, split[b].extent);
        if (along.beyond == continuation::round && offset != 0) split[b].beyond = continuation::round;
        index_range by{offset < 0 ? offset : 0, offset > 0 ? offset : 0};
        if (along.beyond != continuation::none && along.beyond != continuation::round) {
          const auto outside = block_reads::beyond_ends(split[b].extent, offset);
          for (auto e = outside.begin; e < outside.end; ++e) {
            const auto to = element_at(along.beyond, split[b].extent, e + offset) - e;
            join(by, {to, to});
          }
        }
        own = {own.begin + by.begin, own.end + by.end};
      }
    }
    for (const int r : results)
      for (std::size_t b = 0; b < split.size(); ++b) {
        const auto& read = of(at(r).operands[1])[b];
        if (-read.begin > split[b].low) split[b].low = -read.begin;
        if (read.end > split[b].high) split[b].high = read.end;
      }
    for (const auto& b : split)
      if (b.low + b.high > 0) dims.push_back(b);
  }

  const vec<sharding>& completed_;
  graph& errors_;
};

}  // namespace gspmd::detail
