// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// A loop over a stencil as the user wrote it; each iteration is a sweep over its fields. Refuses operators that
/// cannot be computed in blocks.
class ghost_sweep {
 public:
  const graph& program;
  const mesh_shape& mesh;
  int loop;
  vec<int> results, body;    // loop_results; the nodes of the body
  vec<std::uint8_t> varies;  // by node: depends on a carried value or the counter
  extents shape;             // of all fields
  sharding layout;           // of all fields

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
  }

  [[nodiscard]] constexpr const node& at(int i) const { return program.nodes[i]; }
  /// Returns the carried value that a result belongs to.
  [[nodiscard]] constexpr int carry_of(std::size_t result) const { return at(results[result]).operands[0]; }

  [[nodiscard]] constexpr bool is_shift(const node& n) const {
    return n.operands.count == 1 && facts_of(n.op).movements(n) == 1 && at(n.operands[0]).shape == n.shape &&
           moves_all_alike(map_of(n));
  }
  [[nodiscard]] constexpr index_map map_of(const node& n) const { return facts_of(n.op).map(program, n, 0); }
  [[nodiscard]] static constexpr bool is_computed_in_loops(const node& n) {
    return facts_of(n.op).made == origin::shards && facts_of(n.op).runs == realisation::loop;
  }
  /// Returns true for the identity: a reshard, or a reshape to the same shape.
  [[nodiscard]] constexpr bool is_renamed(const node& n) const {
    return facts_of(n.op).made == origin::renamed || (may_be_moved(program, n) && at(n.operands[0]).shape == n.shape);
  }
  [[nodiscard]] static constexpr bool is_source(const node& n) { return facts_of(n.op).made == origin::source; }
  /// Returns true for a broadcast. (A transpose keeps the number of elements.)
  [[nodiscard]] constexpr bool is_stretched(const node& n) const {
    if (facts_of(n.op).runs != realisation::strides || is_source(n)) return false;
    const extents& from = at(n.operands[0]).shape;
    return from.count == 0 || elements(from) != elements(n.shape);
  }

 private:
  constexpr void refuse(const node& n, const text& why) {
    errors_.fail(n.at, name_of(n.op), mistake::region,
                 text("is in a loop with several sweeps for each exchange (ghost), and ")
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
        layout.partial = 0;
      } else if (!(at(c).shape == shape)) {
        refuse(at(loop), text("carries fields of ")
                             << shape_text(shape) << " and " << shape_text(at(c).shape) << ", where all need one shape");
      } else if (completed_[c] != layout) {
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
      if (is_complex(n.type)) return refuse(n, "is complex; carry its parts");
      bool any = n.op == opcode::carry;
      bool all_scalars = true;
      for (int k = 0; k < n.operands.count && n.op != opcode::carry; ++k) {
        any = any || varies[n.operands[k]] != 0;
        all_scalars = all_scalars && at(n.operands[k]).shape.count == 0;
      }
      varies[i] = any ? 1 : 0;
      if (!any || n.op == opcode::carry) continue;
      if (n.shape.count == 0) {
        if (!is_computed_in_loops(n) || !all_scalars) return refuse(n, "its result from a field is not a field");
        continue;
      }
      if (!(n.shape == shape))
        return refuse(n, text("is ") << shape_text(n.shape) << " where the fields are " << shape_text(shape));
      if (n.function != nullptr)
        return refuse(n,
                      "is a function of yours, which would be called for invalid elements and for elements outside of the field");
      if (n.annotated && !same_tiles(mesh, n.shape, completed_[i], layout))
        return refuse(n, text("is sharded ")
                             << sharding_text(*program.mesh, completed_[i], n.shape.count) << " where the fields are sharded "
                             << sharding_text(*program.mesh, layout, n.shape.count));
      if (!is_shift(n) && !is_computed_in_loops(n) && !is_renamed(n) && !(is_stretched(n) && all_scalars))
        return refuse(n, "is neither elementwise nor a shift, and stencils consist of these");
    }
  }

  const vec<sharding>& completed_;
  graph& errors_;
};

}  // namespace gspmd::detail
